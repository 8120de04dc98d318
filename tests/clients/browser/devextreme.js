// Reads the service as DevExtreme's grids do: ODataStore and DataSource, version 4.
import DataSource from "devextreme/data/data_source";
import ODataStore from "devextreme/data/odata/store";

export async function devextreme({ root, authorization }) {
  const store = (entity, fieldTypes) => new ODataStore({
    url: `${root}${entity}`, version: 4, key: "id", keyType: "Int64", fieldTypes,
    beforeSend: (request) => { request.headers.Authorization = authorization; },
  });
  const products = store("products", { price: "Decimal" });
  const orders = store("orders"), items = store("orderItems");
  const source = new DataSource({
    store: products, pageSize: 10, requireTotalCount: true, select: ["code", "price"], sort: [{ selector: "price", desc: true }, "code"],
    filter: [["price", ">", 10], "and", ["!", ["name", "contains", "steel"]]],
  });
  const first = await source.load();
  source.pageIndex(1);
  const second = await source.load();
  return {
    first, second, total: source.totalCount(),
    count: await products.totalCount({ filter: ["active", "=", true] }),
    one: await products.byKey(7, { expand: ["category", "variants"] }),
    // a dotted name makes the store expand, and select inside
    dotted: await items.load({ select: ["id", "product.code", "product.category.name", "order.customer.name"], sort: "id", take: 5 }),
    expanded: await orders.load({ expand: ["customer", "items.product"], select: ["code", "customer.code", "items.quantity", "items.product.code"], filter: ["id", "=", 7] }),
    path: await items.load({ filter: [["product.category.name", "=", "Hammers"], "and", ["quantity", ">=", 11]], sort: ["id"], select: ["id"] }),
    either: await products.load({ filter: [["code", "startswith", "A000"], "or", ["description", "=", null]], select: ["code"], sort: "code" }),
    dates: await orders.load({ filter: ["updatedAt", "<", new Date(2020, 0, 1)], select: ["code"] }),
  };
}
