// Reads a $metadata file with odata-csdl and makes OpenAPI of it with odata-openapi: what both understood, as JSON.
const { readFileSync } = require("node:fs");
const { xml2json } = require("odata-csdl");
const { csdl2openapi } = require("odata-openapi");

const messages = [];
const csdl = xml2json(readFileSync(process.argv[2], "utf8"));
const openapi = csdl2openapi(csdl, { messages });
console.log(JSON.stringify({ csdl, paths: openapi.paths, messages }));
