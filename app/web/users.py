"""The pages /users, for administrators: list and create users; their companies, a new password, deletion."""

from __future__ import annotations

from aiohttp import web

from app.auth import administration
from app.auth.administration import User
from app.web.forms import Form, initial_form
from app.web.page import PageRequest

PAGE = 50  # users


async def show(page: PageRequest) -> web.StreamResponse:
    """The list, with the form for a new user."""
    return await list_page(page, initial_form(companies=[page.company] if page.company else []))


async def create(page: PageRequest) -> web.StreamResponse:
    """Create a user; the answer is the only page that shows the password."""
    form = await page.form()
    email = form["email"].strip()
    password = None
    if not email:
        form.add_problem("email", "Enter an email address")
    elif not (form.all("companies") or form.has("administrator", "yes")):
        form.add_problem("companies", "Choose one company or more")
    elif gone := set(form.all("companies")) - set(await administration.all_companies(page.database)):
        form.add_problem("companies", f"No such company: {min(gone)}")
    else:
        rights = {"administrator": form.has("administrator", "yes")}
        with form.collect_problems("email", "companies", targets={"": "email"}):
            password = await administration.create_user(page.database, page.identity, email, form.all("companies"), **rights)
    return await list_page(page, form, password)


async def edit(page: PageRequest) -> web.StreamResponse:
    """The page of one user."""
    user = await administration.find_user(page.database, page.path_variables["id"])
    return await user_page(page, user, access_of(user))


async def save(page: PageRequest) -> web.StreamResponse:
    """Change what was changed in the form: others may have changed the rest since it was opened."""
    form = await page.form()
    user = await administration.find_user(page.database, page.path_variables["id"])
    shown, chosen = set(form.all("shown")[-1].split() if form.all("shown") else user.companies), set(form.all("companies"))
    companies = sorted((set(user.companies) - (shown - chosen)) | (chosen - shown))
    administrator = form.has("administrator", "yes")
    if administrator == form.has("was_administrator", "yes") and form.all("shown"):
        administrator = user.is_administrator
    if not (companies or administrator):
        form.add_problem("companies", "Choose one company or more, or delete the user")
    else:
        with form.collect_problems("companies", "administrator", targets={"": "companies"}):
            await administration.set_access(page.database, page.identity, user, companies, administrator=administrator)
    if form.problems:
        return await user_page(page, user, form)
    return page.redirect("/users", flash="user-saved")


async def reset(page: PageRequest) -> web.StreamResponse:
    """Give a user a new password; the answer is the only page that shows it."""
    await page.form()
    user = await administration.find_user(page.database, page.path_variables["id"])
    form = access_of(user)
    password = None
    with form.collect_problems():
        password = await administration.reset_password(page.database, page.identity, user)
    return await user_page(page, user, form, password)


async def delete(page: PageRequest) -> web.StreamResponse:
    await page.form()
    user = await administration.find_user(page.database, page.path_variables["id"])
    form = access_of(user)
    with form.collect_problems():
        await administration.delete_user(page.database, page.identity, user)
    return await user_page(page, user, form) if form.problems else page.redirect("/users", flash="user-deleted")


def access_of(user: User) -> Form:
    """The form with what the user may do."""
    administrator = "yes" if user.is_administrator else ""
    shown = " ".join(user.companies)
    return initial_form(companies=user.companies, shown=shown, administrator=administrator, was_administrator=administrator)


async def list_page(page: PageRequest, form: Form, password: str | None = None) -> web.Response:
    """The list of users with the form for a new one; with `password`, that of the user that was created instead of the form."""
    offset = page.offset()
    users, more = await administration.list_users(page.database, PAGE, offset)
    return page.render(
        "users.html",
        201 if password else form.status,
        users=users,
        more=more,
        offset=offset,
        page_size=PAGE,
        form=form,
        password=password,
        choices=await administration.all_companies(page.database),
    )


async def user_page(page: PageRequest, user: User, form: Form, password: str | None = None) -> web.Response:
    """The page of one user; with `password`, the new one."""
    choices = await administration.all_companies(page.database)
    return page.render("user.html", form.status, user=user, form=form, password=password, choices=choices)
