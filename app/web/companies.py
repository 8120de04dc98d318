"""The page /companies, for administrators: list, create, delete."""

from __future__ import annotations

from aiohttp import web

from app.auth import administration
from app.database.servers.directory import HOME
from app.web.forms import Form, initial_form
from app.web.page import PageRequest, see_other
from app.web.view import local_url

PAGE = 50  # companies


async def show(page: PageRequest) -> web.StreamResponse:
    """The list, with the form for a new company."""
    return await list_page(page, initial_form(mine="yes"))


async def create(page: PageRequest) -> web.StreamResponse:
    form = await page.form()
    company, tenant = form["id"].strip(), form["tenant"].strip()
    if not company:
        form.add_problem("id", "Enter an id")
        return await list_page(page, form)
    with form.collect_problems("id", "tenant", "place", targets={"": "id"}):
        place, mine = form["place"] or None, form.has("mine", "yes")
        await administration.create_company(page.database, page.identity, company, tenant or None, place=place, mine=mine)
    if form.problems:
        return await list_page(page, form)
    return see_other(local_url("/companies", company=company if form.has("mine", "yes") else page.company, flash="company-created"))


async def delete(page: PageRequest) -> web.StreamResponse:
    """Delete a company whose id was typed."""
    form = await page.form()
    company = page.path_variables["id"]
    if form["confirm"].strip() != company:
        form.add_problem("", f"{company} was not deleted: type its id, {company}, to delete it")
    else:
        with form.collect_problems():
            await administration.delete_company(page.database, page.identity, company)
    if form.problems:
        return await list_page(page, Form({"mine": ["yes"]}, form.problems, form.code))
    remaining = page.company if page.company != company else None
    return see_other(local_url("/companies", company=remaining, flash="company-deleted"))


async def list_page(page: PageRequest, form: Form) -> web.Response:
    """The list of companies with the form for a new one."""
    offset = page.offset()
    places = await administration.open_places(page.database)
    companies, more = await administration.list_companies(page.database, PAGE, offset)
    return page.render(
        "companies.html",
        form.status,
        form=form,
        companies=companies,
        place_choices=[("", "chosen by the service"), *((name, name) for name in places)] if places != [HOME] else [],
        more=more,
        offset=offset,
        page_size=PAGE,
    )
