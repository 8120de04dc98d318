"""What runs: routes, middleware, the HTTP server, its processes and periodic maintenance."""
