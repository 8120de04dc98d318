// Reads the service on the host argv[2] with the key argv[3] by the client that SAP's generator has made, and prints what came as JSON.
import { any, asc, desc, filterFunctions } from "@sap-cloud-sdk/odata-v4";
import BigNumber from "bignumber.js";
import { metadata } from "./sap/metadata";

async function main([url, key]: string[]): Promise<void> {
  const destination = { url, username: "api", password: key, authentication: "BasicAuthentication" as const };
  const { productsApi, productVariantsApi } = metadata();
  const { schema } = productsApi;
  const page = await productsApi.requestBuilder().getAll()
    .select(schema.CODE, schema.PRICE).filter(schema.PRICE.greaterThan(new BigNumber(1))).orderBy(desc(schema.PRICE)).top(2)
    .execute(destination);
  const expanded = await productsApi.requestBuilder().getAll()
    .expand(schema.CATEGORY, schema.VARIANTS).filter(filterFunctions().contains(schema.NAME, "professional").equals(true)).orderBy(asc(schema.CODE))
    .execute(destination);
  const withVariants = await productsApi.requestBuilder().getAll()
    .select(schema.CODE).filter(schema.VARIANTS.filter(any(productVariantsApi.schema.PRICE.greaterOrEqual(new BigNumber(150)))))
    .execute(destination);
  const one = await productsApi.requestBuilder().getByKey(new BigNumber(1)).execute(destination);
  const count = await productsApi.requestBuilder().getAll().count().execute(destination);
  console.log(JSON.stringify({ page, expanded, any: withVariants, one, count }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
