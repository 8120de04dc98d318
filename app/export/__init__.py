"""Export: what a query gives, in whatever form somebody needs."""
