"""HTTP that all packages share: URLs, request bodies, responses, content codings, reverse proxies."""
