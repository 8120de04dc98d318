// Reads the service with UI5's OData V4 model and its tables, in their defaults: every read is part of a $batch.
// The address and the key are in the fragment: #{"root": ..., "authorization": ...}.  Functions of `ui5` are called by the tests.
const { root, authorization } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const load = (...names) => new Promise((done, failed) => sap.ui.require(names, (...loaded) => done(loaded), failed));

const ui5 = {
  async start() {
    await new Promise((done) => sap.ui.require(["sap/ui/core/Core"], (core) => core.ready(done)));
    const [ODataModel] = await load("sap/ui/model/odata/v4/ODataModel");
    const model = new ODataModel({
      serviceUrl: root, httpHeaders: { Authorization: authorization }, autoExpandSelect: true, operationMode: "Server",
    });
    return model;
  },

  // a list binding of its own: filters, sorters, the count, pages
  async list() {
    const [Filter, FilterOperator, Sorter] =
      await load("sap/ui/model/Filter", "sap/ui/model/FilterOperator", "sap/ui/model/Sorter");
    const model = await ui5.start();
    const filters = [
      new Filter("price", FilterOperator.BT, "10", "100"),
      new Filter({ path: "name", operator: FilterOperator.Contains, value1: "STEEL", caseSensitive: false }),
      new Filter({ filters: [new Filter("active", FilterOperator.EQ, true), new Filter("description", FilterOperator.EQ, null)], and: false }),
    ];
    const binding = model.bindList("/products", null, [new Sorter("price", true), new Sorter("code")], filters,
      { $count: true, $select: "code,price" });
    const any = model.bindList("/orders", null, [new Sorter("code")], new Filter({
      path: "items", operator: FilterOperator.Any, variable: "item",
      condition: new Filter({ filters: [new Filter("item/quantity", FilterOperator.GT, "10"), new Filter("item/product/price", FilterOperator.GT, "150")], and: true }),
    }), { $select: "code" });
    const [first, withItem] = await Promise.all([binding.requestContexts(0, 3), any.requestContexts(0, 1000)]);
    return {
      first: first.map((row) => row.getObject()),
      rest: (await binding.requestContexts(3, 100)).map((row) => row.getObject()),
      count: await binding.getHeaderContext().requestProperty("$count"),
      any: withItem.map((row) => row.getProperty("code")),
    };
  },

  // an object binding, what is related to it (nested), and a list of its own request
  async object() {
    const model = await ui5.start();
    const order = model.bindContext("/orders(7)", null, {
      $expand: {
        customer: { $select: "code,name" },
        items: { $count: true, $orderby: "id", $select: "quantity", $expand: { product: { $select: "code", $expand: { category: { $select: "name", $expand: "parent($select=code)" } } } } },
      },
      $select: "code,orderDate,total",
    });
    const content = await order.requestObject();
    const own = model.bindList("items", order.getBoundContext(), null, null, { $$ownRequest: true, $select: "id,price" });
    const items = (await own.requestContexts(0, 100)).map((row) => row.getObject());
    return {
      content, items,
      customer: await model.bindContext("/orders(7)/customer", null, { $select: "code" }).requestObject(),
      nothing: await model.bindContext("/categories(1)/parent").requestObject() ?? null,
      empty: await model.bindProperty("/units(2)/symbol").requestValue() ?? null,
      name: await model.bindProperty("/products(1)/name").requestValue(),
      count: await model.bindProperty("/products/$count").requestValue(),
    };
  },

  // groups: what a table with $$aggregation shows
  async groups() {
    const model = await ui5.start();
    const binding = model.bindList("/orders", null, null, null, {
      $$aggregation: { aggregate: { amount: { name: "total", with: "sum" } }, group: { status: {}, currency: {} } },
    });
    return (await binding.requestContexts(0, 100)).map((row) => row.getObject());
  },

  // without $batch: each read is a request of its own
  async direct() {
    const [Filter, Sorter] = await load("sap/ui/model/Filter", "sap/ui/model/Sorter");
    const model = await ui5.start(), $$groupId = "$direct";
    const orders = model.bindList("/orders", null, [new Sorter("orderDate", true), new Sorter("code")], [new Filter("status", "EQ", "closed")],
      { $$groupId, $count: true, $select: "code", $expand: { customer: { $select: "name" } } });
    const groups = async ($$aggregation) =>
      (await model.bindList("/orders", null, null, null, { $$groupId, $$aggregation }).requestContexts(0, 100)).map((row) => row.getObject());
    const amount = { amount: { name: "total", with: "sum", subtotals: true } };
    const product = model.bindContext("/products(1)", null, { $$groupId, $expand: { category: { $select: "code" } }, $select: "code" });
    return {
      orders: (await orders.requestContexts(0, 30)).map((row) => row.getObject()),
      count: orders.getLength(),
      product: await product.requestObject(),
      groups: await groups({ aggregate: amount, group: { currency: {} } }),
      levels: await groups({ aggregate: amount, group: {}, groupLevels: ["currency", "status"] }),
      total: await groups({ aggregate: { amount: { name: "total", with: "sum" } } }),
      grandTotal: await groups({ aggregate: { amount: { ...amount.amount, grandTotal: true } }, group: { currency: {} } }).catch(String),
    };
  },

  // a table that grows by a click of the user, with cells behind references, and under it the items of the selected order
  async show() {
    const [Table, Column, ColumnListItem, Text, Sorter, Filter] =
      await load("sap/m/Table", "sap/m/Column", "sap/m/ColumnListItem", "sap/m/Text", "sap/ui/model/Sorter", "sap/ui/model/Filter");
    const model = await ui5.start();
    const table = (id, items, cells, extra) => new Table(id, {
      growing: true, growingThreshold: 20, mode: "SingleSelectMaster",
      columns: cells.map(() => new Column()),
      items: { ...items, template: new ColumnListItem({ cells: cells.map((path) => new Text({ text: { path } })) }) },
      ...extra,
    });
    const details = table("details", { path: "items" }, ["product/code", "product/category/name", "quantity"]);
    const orders = table("orders", {
      path: "/orders", parameters: { $count: true }, sorter: new Sorter("orderDate", true), filters: new Filter("status", "EQ", "closed"),
    }, ["code", "customer/name", "orderDate", "total"], {
      selectionChange: (event) => details.setBindingContext(event.getParameter("listItem").getBindingContext()),
    });
    for (const each of [orders, details]) {
      each.setModel(model);
      each.placeAt("content");
    }
  },

  rows: (id) => sap.ui.require("sap/ui/core/Element").getElementById(id).getItems()
    .map((item) => item.getCells().map((cell) => cell.getText())),
};
