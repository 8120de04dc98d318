// Reads the service at argv[2] with the key argv[3] by the client that odata2ts has generated, and prints what came as JSON.
import { FetchClient } from "@odata2ts/http-client-fetch";
import { bdsService } from "./generated/bdsService";

async function main([root, key]: string[]): Promise<void> {
  const authorization = "Basic " + Buffer.from(`api:${key}`).toString("base64");
  const service = new bdsService(new FetchClient({ headers: { Authorization: authorization } }), root);
  const page = await service.products().query((builder, product) =>
    builder.select("code", "price").filter(product.price.gt(1)).orderBy(product.price.desc()).top(2).count());
  const expanded = await service.products().query((builder, product) =>
    builder.expand("category", "variants").filter(product.category.props.name.contains("crew")).orderBy(product.code.asc()));
  const any = await service.products().query((builder, product) =>
    builder.select("code").filter(product.variants.any((variant) => variant.price.ge(150))));
  const one = await service.products(1).query();
  const related = await service.products(1).variants().query();
  console.log(JSON.stringify({
    page: page.data, expanded: expanded.data, any: any.data, one: one.data, related: related.data,
  }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
