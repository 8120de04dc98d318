"""Webhooks: registered hooks, and the worker that sends them the changes of a company.

    registration.py  hooks under /c: create, change, delete, test, retry; a page of deliveries
    hook.py          the JSON body of a hook, checked; its filter compiled
    worker.py        listen -> route changes to hooks -> claim batches -> attempt -> record outcomes
    send.py          one attempt: sign, POST, read the reply
    addresses.py     only public addresses, checked at registration and at each connection

The queue is in the database (SQL functions route_changes, claim_deliveries, record_attempts, renew_leases): batches, leases and the
times of attempts.  HTTP happens outside any transaction.
"""
