// Reads the service as Syncfusion's grids do: DataManager with the ODataV4Adaptor.
import { DataManager, ODataV4Adaptor, Predicate, Query } from "@syncfusion/ej2-data";

export async function syncfusion({ root, authorization }) {
  const manager = (entity) => new DataManager({
    url: `${root}${entity}`, adaptor: new ODataV4Adaptor(), headers: [{ Authorization: authorization }], crossDomain: true,
  });
  const read = async (entity, query) => {
    const { result, count } = await manager(entity).executeQuery(query);
    return { result, count };
  };
  return {
    page: await read("products", new Query().sortBy("price", "descending").page(2, 10).select(["code", "price"]).requiresCount()),
    where: await read("products", new Query()
      .where(new Predicate("name", "contains", "STEEL", true).and("price", "greaterthan", 100).and("active", "equal", true))
      .select(["code"]).sortBy("code")),
    either: await read("products", new Query().where(new Predicate("code", "startswith", "A000").or("description", "equal", null))
      .select(["code"]).sortBy("code")),
    dates: await read("orders", new Query()
      .where(new Predicate("orderDate", "greaterthanorequal", new Date(Date.UTC(2025, 5, 1))).and("orderDate", "lessthan", new Date(Date.UTC(2025, 5, 10))))
      .select(["code"]).sortBy("code")),
    changed: await read("orders", new Query().where("updatedAt", "lessthan", new Date(Date.UTC(2020, 0, 1))).requiresCount().take(1)),
    // a column of a referenced row makes the adaptor expand and select inside it
    expanded: await read("products", new Query().expand(["category"]).select(["code", "category.name"]).sortBy("code").take(3)),
    nested: await read("orderItems", new Query().expand(["product", "order"]).select(["id", "product.code", "order.code", "order.orderDate"])
      .where("product.category.name", "equal", "Hammers").sortBy("id").take(5)),
    all: await read("customers", new Query().sortBy("code").skip(70)),
  };
}
