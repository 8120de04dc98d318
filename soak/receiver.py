"""A receiver of webhooks that misbehaves in the manner of each hook, and notes every request."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

from soak.ledger import Attempt, Hook, Ledger
from soak.world import World

TOO_SLOW = 2.5  # seconds, more than BDS_WEBHOOK_TIMEOUT
# of each manner, how often it answers what; None: hangs up, 0: answers too late
MANNERS: dict[str, list[tuple[int | None, int]]] = {
    "good": [(204, 1)],
    "failing": [(200, 6), (500, 3), (503, 1)],
    "slow": [(200, 8), (0, 1)],
    "rude": [(200, 5), (None, 3), (302, 1)],
    "refusing": [(200, 6), (404, 2), (410, 1)],
}
HOOKS: list[tuple[str, str | None, bool, list[str]]] = [
    ("good", None, True, []), ("failing", None, True, []), ("slow", "units", True, []), ("rude", "products", True, ["price"]),
    ("refusing", "units", False, ["name"]),
]  # fmt: skip


@contextmanager
def receiving(ledger: Ledger, rng: random.Random) -> Iterator[int]:
    """A receiver at the port that is given."""
    calm = ledger.stop

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook = _hook(ledger, self.path)
            status = 204 if hook is None or calm.is_set() else _status(rng, hook.manner)
            if hook is not None:
                changes = tuple(int(each["id"]) for each in json.loads(body)["changes"])
                answered = None if status == 0 else status
                ledger.attempts.append(
                    Attempt(hook.id, self.headers["webhook-id"], changes, answered, _is_genuine(hook.secret, body, self.headers))
                )
            if not status:
                time.sleep(TOO_SLOW if status == 0 else 0)
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, address: object) -> None:
            pass  # clients that were killed

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _hook(ledger: Ledger, path: str) -> Hook | None:
    name = path.strip("/")
    if name == "elsewhere":
        ledger.find("a redirect was followed")
    return next((each for each in ledger.hooks if f"{each.company}/{each.manner}" == name), None)


def _status(rng: random.Random, manner: str) -> int | None:
    answers = MANNERS[manner]
    return rng.choices([status for status, _ in answers], [weight for _, weight in answers])[0]


def _is_genuine(secret: str, body: bytes, headers: object) -> bool:
    try:
        Webhook(secret).verify(body, {name: headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")})  # type: ignore[index]
    except WebhookVerificationError:
        return False
    return True


def register(world: World, ledger: Ledger, port: int, companies: tuple[str, ...]) -> None:
    for company in companies:
        for manner, entity, in_change_sets, columns in HOOKS:
            asked = {
                "entity": entity, "url": f"http://127.0.0.1:{port}/{company}/{manner}", "action": "webhook",
                "allowInChangeSet": in_change_sets, **({"columns": columns} if columns else {}),
            }  # fmt: skip
            reply = world.ask(
                f"/c/{company}/hooks", "POST", json.dumps(asked).encode(), headers={"Content-Type": "application/json"}
            )
            if reply.status != 201:
                raise RuntimeError(f"the hook was refused: {reply.status} {reply.body!r}")
            stored = reply.json
            ledger.hooks.append(Hook(stored["id"], company, entity, in_change_sets, stored["secret"], manner, frozenset(columns)))
