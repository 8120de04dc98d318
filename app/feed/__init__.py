"""The feed: an import document arrives, is cut into records, staged by COPY, and compared and written by the database.

    receive.py       requests for imports and reverts: options, headers, the body (requests.py: those with an Idempotency-Key)
    work.py          what such a request does: stages the body as it arrives, compares and writes
    background.py    imports as background tasks, which end with the service, and their threads
    reports.py       the report, lists of imports and errors, cancel
    run.py           Import: begin -> receive -> received -> run, or fail; the states of an import
    staging.py       bytes -> records -> lines -> COPY into the staging tables
    converter.py       the source of a mapper -> an import document
    document.py        the document's bytes -> directives and blocks of records (buffer.py, cutter.py, decoding.py)
    directives.py      @atomic, @mode, @removeAll
    rows.py            records -> lines of text and errors of structure (shapes.py: a generated writer for each shape)
    revert.py        Revert: an import whose records come from the change log (undone.py: which imports were undone)
    heartbeat.py     signs of life, and the cancel that they notice (idle_connection.py: no session for a slow client)

The SQL function bds.import_run does the rest: match, compare, check, write, report.
"""
