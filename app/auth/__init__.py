"""Authentication: who sends a request, and what they may do in which company.

gate.py       authenticates a request by its headers; caches API keys
keys.py       makes and hashes API keys, reads them from headers
key_admin.py  lists, creates and revokes the API keys of a user's companies
login.py      login, logout and change of password; the CSRF check
passwords.py  hashes and verifies passwords
tokens.py     signs login tokens, session cookies and CSRF tokens
throttle.py   limits wrong credentials per address and minute
"""
