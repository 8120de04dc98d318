"""Takes the pictures of the README anew: make pictures

They show the demo company in the machine's Chromium: the overview in light colours, the history of a product in dark ones.
"""

from __future__ import annotations

import re
import sys

from tests import chromium
from tests.docs.checkout import demo
from tests.docs.documents import ROOT

CHANGE = """
begin;
select bds.set_context('demo', 'anna');
update data.products set description = 'Covers in one coat.' where company_id = 'demo' and code = 'A0010';
commit;
"""
FEED = '{"products": [{"code": "A0010", "price": 149.9, "category": "code:varnish"}]}'
IMPORT = f"curl -s -H \"X-API-Key: $KEY\" -H 'Content-Type: application/json' -d '{FEED}' $URL/api/demo/import"


def main() -> int:
    if (found := chromium.find()) is None:
        sys.stderr.write(f"{chromium.MISSING}\n")
        return 1
    with demo() as (here, printed), chromium.started(found) as browser:
        here.psql(CHANGE)
        here.type([IMPORT])
        (row,) = here.psql("select id from data.products where company_id = 'demo' and code = 'A0010'", "-At").split()
        signs_in = re.search(r"sign in: +(\S+)/login as (\S+)\npassword: (\S+)", printed)
        assert signs_in
        base, email, password = signs_in.groups()
        for name, scheme, path, height in (
            ("overview", "light", "/?company=demo", 790),
            ("history", "dark", f"/changes/products/{row}?company=demo", 640),
        ):
            size = {"width": 1100, "height": height}
            page = browser.new_context(base_url=base, viewport=size, color_scheme=scheme).new_page()
            page.goto("/login")
            page.fill("#email", email)
            page.fill("#password", password)
            page.click("button.main")
            page.wait_for_url("**/")
            page.goto(path)
            page.screenshot(path=ROOT / "docs" / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
