// Reads the service in the extended profile as read_sap.ts does: options inside $expand, and a $batch.
import { and, asc, desc } from "@sap-cloud-sdk/odata-v4";
import BigNumber from "bignumber.js";
import { batch, metadata } from "./sap/metadata";

async function main([url, key]: string[]): Promise<void> {
  const destination = { url, username: "api", password: key, authentication: "BasicAuthentication" as const };
  const { categoriesApi, customersApi, orderItemsApi, ordersApi, productsApi } = metadata();
  const { schema } = ordersApi, items = orderItemsApi.schema, products = productsApi.schema;
  const nested = await ordersApi.requestBuilder().getAll()
    .select(schema.CODE)
    .expand(schema.CUSTOMER.select(customersApi.schema.NAME), schema.ITEMS.select(items.QUANTITY).orderBy(asc(items.ID))
      .expand(items.PRODUCT.select(products.CODE).expand(products.CATEGORY.select(categoriesApi.schema.NAME))))
    .filter(schema.ID.lessThan(new BigNumber(4))).orderBy(asc(schema.CODE))
    .execute(destination);
  const restricted = await ordersApi.requestBuilder().getAll()
    .select(schema.CODE)
    .expand(schema.ITEMS.filter(and(items.QUANTITY.greaterThan(new BigNumber(5)), items.PRICE.lessThan(new BigNumber(150))))
      .orderBy(desc(items.PRICE), asc(items.ID)).top(2).skip(1).expand(items.PRODUCT))
    .filter(schema.ID.lessThan(new BigNumber(30))).orderBy(asc(schema.CODE))
    .execute(destination);
  const answers = await batch(
    productsApi.requestBuilder().getAll().select(products.CODE, products.PRICE).orderBy(desc(products.PRICE)).top(3),
    productsApi.requestBuilder().getByKey(new BigNumber(7)).expand(products.CATEGORY),
    ordersApi.requestBuilder().getAll().select(schema.CODE).expand(schema.ITEMS.select(items.ID)).filter(schema.ID.equals(new BigNumber(7))),
    customersApi.requestBuilder().getByKey(new BigNumber(0)),
    categoriesApi.requestBuilder().getAll().top(1),
  ).execute(destination);
  const apis = [productsApi, productsApi, ordersApi, customersApi, categoriesApi];
  const parts = answers.map((each, number) => ({
    status: (each as unknown as { httpCode: number }).httpCode,
    rows: each.isReadResponse() && each.as(apis[number]! as typeof productsApi),
  }));
  console.log(JSON.stringify({ nested, restricted, parts }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
