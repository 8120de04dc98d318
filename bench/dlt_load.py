"""Loads the products of an import document with dlt's merge, as a peer does it, and prints how many seconds that took.

`python dlt_load.py CONNECTION_URL DOCUMENT DIRECTORY`, by an interpreter that has dlt; reading the document is part of it.
"""

import json
import sys
import time
from pathlib import Path

import dlt

url, document, directory = sys.argv[1:]


def products():
    records = json.loads(Path(document).read_bytes())["products"]
    for start in range(0, len(records), 10_000):
        yield records[start : start + 10_000]


pipeline = dlt.pipeline("bench", destination=dlt.destinations.postgres(url), dataset_name="dlt_bench", pipelines_dir=directory)
resource = dlt.resource(products, name="products", primary_key="code", write_disposition="merge")
started = time.perf_counter()
pipeline.run(resource, loader_file_format="csv").raise_on_failed_jobs()
print(time.perf_counter() - started)
