"""The running service.  A request passes through server, middleware and a route.

Modules:
    server              one process: the listening socket, its connections, a stop that lets running requests finish
    processes           several processes on one address
    supervisor          the parent that starts, watches and replaces them
    lifeline            a child's end of the socket to its parent
    application         the aiohttp application and its background tasks
    middleware          request ids, error responses, common headers, the log line, metrics
    logged_path         the path in that line
    routes              one handler for each route outside the web pages: data_routes, feed_routes, hook_routes; and with what these
                        share, senders
    openapi             the OpenAPI description, of the routes in operations, with the schemas in schemas
    maintenance         periodic work in the database
    metrics_endpoint    /metrics, and the sampling of gauges
    metrics_directory   the directory through which processes share their metrics
    memory              few heaps for the threads of a process
    sockets             checks the address to listen on
"""
