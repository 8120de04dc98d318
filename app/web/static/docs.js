// Shows openapi.json in Swagger UI. Requests carry the session's CSRF token; the company of the page is filled in.
"use strict";

const place = document.getElementById("swagger");

window.addEventListener("load", () => {
    window.SwaggerUIBundle({
        url: "/openapi.json",
        domNode: place,
        deepLinking: true,
        docExpansion: "list",
        defaultModelsExpandDepth: 0,
        validatorUrl: null,
        requestInterceptor: (request) => {
            if (new URL(request.url, location.href).origin === location.origin) request.headers["X-CSRF-Token"] = place.dataset.csrf;
            return request;
        },
        responseInterceptor: (response) => {
            if (!response.url.endsWith("/openapi.json") || !response.ok) return response;
            const company = place.dataset.company;
            for (const operations of Object.values(response.body.paths ?? {}))
                for (const operation of Object.values(operations))
                    for (const parameter of operation.parameters ?? [])
                        if (parameter.in === "path" && parameter.name === "companyId") parameter.example = company;
            response.text = JSON.stringify(response.body);
            return response;
        },
    });
});
