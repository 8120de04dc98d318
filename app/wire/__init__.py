"""HTTP without routes: URLs, bodies, answers, content codings, reverse proxies."""
