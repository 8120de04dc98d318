// Comfort for pages that work without it: copy buttons, live updates of running work, uploads by drag and drop with progress.
"use strict";

const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Focuses a problem or a secret that is shown once, so that screen readers announce it first.
function focusFirst() {
    const found = document.querySelector("[data-focus]");
    if (found) found.focus();
}

// A reload must not repeat the form: it shows the list instead, and no flash message.
function replaceAddress() {
    const found = document.querySelector("[data-replace]");
    if (found) history.replaceState(null, "", found.dataset.replace);
    const url = new URL(location.href);
    if (url.searchParams.has("flash")) {
        url.searchParams.delete("flash");
        history.replaceState(null, "", url);
    }
}

function copyButtons() {
    for (const button of $$("[data-copy]")) {
        const field = document.getElementById(button.dataset.copy);
        button.hidden = false;
        button.addEventListener("click", async () => {
            field.select();
            try {
                await navigator.clipboard.writeText(field.value);
            } catch {
                document.execCommand("copy");
            }
            button.textContent = "Copied";
            button.setAttribute("aria-live", "polite");
        });
    }
    for (const field of $$("[data-select]")) field.addEventListener("focus", () => field.select());
}

// Shows a field only while another one has the value that it depends on.
function dependentFields() {
    for (const each of $$("[data-shown-if]")) {
        const [name, value] = each.dataset.shownIf.split("=");
        const other = each.closest("form").elements[name];
        const show = () => { each.hidden = other.value !== value; };
        other.addEventListener("change", show);
        show();
    }
}

// Fetches the page again from time to time and replaces its live part, until that has ended.
function keepFresh() {
    const live = document.getElementById("live");
    if (!live || !live.dataset.refresh) return;
    const announcer = document.querySelector("[data-announce]");
    setTimeout(async () => {
        if (!document.hidden && !live.querySelector("details.confirm[open]")) {
            try {
                const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
                if (answer.redirected) return signedOut(live);
                if (hasEnded(answer)) return noAccess(live);
                const page = new DOMParser().parseFromString(await answer.text(), "text/html");
                const fresh = page.getElementById("live");
                if (answer.ok && fresh) {
                    for (const part of $$("[data-live]")) part.replaceWith(page.getElementById(part.id) ?? part);
                    replaceLive(live, fresh, announcer);
                }
            } catch { /* the service does not answer: try again next time */ }
        }
        keepFresh();
    }, Number(live.dataset.refresh));
}

// Shows a message instead of the login, so that text typed into the page is not lost.
function signedOut(live) {
    stopUpdates(live, "Your session has ended, so this page is no longer updated. Reload it to sign in again.");
}

// Says that the page can no longer be read: its company was deleted, or the user's access has ended.
function noAccess(live) {
    stopUpdates(live, "This page can no longer be read, so it is not updated any more: its company was deleted, or your access to it has ended.");
}

function stopUpdates(live, text) {
    const message = document.createElement("p");
    message.className = "note";
    message.setAttribute("role", "alert");
    message.textContent = text;
    live.prepend(message);
    delete live.dataset.refresh;
}

const hasEnded = (answer) => answer.status >= 400 && answer.status < 500 && answer.status !== 408 && answer.status !== 429;

// Before a form is sent: if the session has ended, asks for the login in place, so that nothing that was typed is lost.
function sessions() {
    const checked = new WeakSet();
    document.addEventListener("submit", async (event) => {
        const { target: form, submitter } = event;
        if (event.defaultPrevented || form.method !== "post" || ["/login", "/logout"].includes(new URL(form.action).pathname)) return;
        if (checked.delete(form)) return;
        event.preventDefault();
        if (!await isSignedIn()) return;
        checked.add(form);
        form.requestSubmit(submitter);
    });
}

// Whether there is a session, after a login in place if it had ended.
async function isSignedIn() {
    try {
        const answer = await fetch("/account", { method: "HEAD", headers: { Accept: "text/html" } });
        return answer.redirected ? await signIn() : true;
    } catch {
        return true;  // the service does not answer: the browser says so
    }
}

// Shows the form of the login in a dialog until it succeeds or is closed.
async function signIn() {
    const first = await fetch("/login?next=/account");
    if (!first.ok) throw new Error(`the login answered ${first.status}`);
    const dialog = document.createElement("dialog");
    const say = document.createElement("p");
    say.setAttribute("role", "status");
    const show = async (answer) => {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const login = page.querySelector("form[action='/login']")?.closest(".login");
        if (!login) {  // a page of the new session
            const { value } = page.querySelector("input[name=csrf]");
            for (const field of $$("input[name=csrf]")) field.value = value;
            for (const form of $$("form[data-csrf]")) form.dataset.csrf = value;
            return dialog.close("in");
        }
        dialog.replaceChildren(login);
        say.textContent = "Your session has ended. Sign in to send what you entered; nothing has been sent yet.";
        dialog.querySelector("h1").after(say);
        const cancel = document.createElement("button");
        cancel.type = "button";
        cancel.textContent = "Cancel";
        cancel.addEventListener("click", () => dialog.close());
        dialog.querySelector(".row").append(cancel);
        dialog.querySelector("[role=alert], input:not([type=hidden])").focus();
    };
    const ended = new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "in")));
    dialog.setAttribute("aria-label", "Sign in");
    document.body.append(dialog);
    dialog.showModal();
    show(first);
    dialog.addEventListener("submit", async (event) => {
        event.preventDefault();
        event.stopPropagation();
        try {
            await show(await fetch("/login", { method: "POST", body: new URLSearchParams(new FormData(event.target)) }));
        } catch {
            say.textContent = "The service does not answer. Nothing has been sent yet: try again.";
        }
    });
    const isIn = await ended;
    dialog.remove();
    return isIn;
}

function replaceLive(live, fresh, announcer) {
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const open = $$("details[open][id]", live).map((each) => each.id);
    for (const id of open) fresh.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
    if (announcer && fresh.dataset.state !== live.dataset.state) announcer.textContent = fresh.dataset.state;
    live.replaceWith(fresh);
    if (focused) document.getElementById(focused)?.focus();
}

// Sends the file to the API instead, which allows showing the progress, then opens the report.
function uploads() {
    for (const form of $$("form[data-upload]")) {
        const part = (name) => form.querySelector(`[data-${name}]`);
        const drop = part("drop");
        const file = form.elements.file;
        part("drop-hint").hidden = false;
        for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
        for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
        drop.addEventListener("drop", (event) => {
            event.preventDefault();
            if (!event.dataTransfer.files.length) return;
            file.files = event.dataTransfer.files;
            chooseReader(form, file.files[0].name);
        });
        file.addEventListener("change", () => file.files.length && chooseReader(form, file.files[0].name));
        form.elements.mapper.addEventListener("change", () => delete form.elements.mapper.dataset.byName);
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            if (file.files.length) isSignedIn().then((is) => is && send(form, part, file.files[0]));
        });
    }
}

// The media type of a file as an export writes it, by its name; undefined of another one.
function exportedType(form, name) {
    const { types, ending } = JSON.parse(form.dataset.files);
    const [, extension] = new RegExp(ending, "i").exec(name) || [];
    return types[(extension || "").toLowerCase()];
}

// Chooses what reads a file by its name, as the service does without JavaScript, unless something was chosen by hand.
function chooseReader(form, name) {
    const select = form.elements.mapper;
    if (select.value && !("byName" in select.dataset)) return;
    const [entity] = new RegExp(JSON.parse(form.dataset.files).entity, "i").exec(name) ?? [""];
    const option = exportedType(form, name) ? select.querySelector(`option[value="entity:${CSS.escape(entity)}"]`) : select.options[0];
    select.value = option ? option.value : "";
    select.dataset.byName = "";
}

function send(form, part, file) {
    const query = new URLSearchParams();
    const type = exportedType(form, file.name);
    const [, entity] = form.elements.mapper.value.split("entity:");
    if (entity) query.set("entity", entity);
    else if (form.elements.mapper.value) query.set("mapper", form.elements.mapper.value);
    if (form.elements.dryRun.checked) query.set("dryRun", "true");
    const request = new XMLHttpRequest();
    request.open("POST", `${form.dataset.upload}?${query}`);
    request.setRequestHeader("X-CSRF-Token", form.dataset.csrf);
    request.setRequestHeader("Prefer", "respond-async");
    request.setRequestHeader("Content-Type", entity ? type || "text/csv" : form.elements.mapper.value ? "application/octet-stream" : "application/json");
    request.setRequestHeader("Content-Disposition", `attachment; filename*=UTF-8''${encodeURIComponent(file.name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`)}`);
    const codings = Object.entries(JSON.parse(form.dataset.files).codings);
    const [, coding] = codings.find(([end]) => file.name.toLowerCase().endsWith(end)) ?? [];
    if (coding) request.setRequestHeader("Content-Encoding", coding);
    const button = form.querySelector("button.main");
    const ended = (message) => {
        part("sending").hidden = part("stop").hidden = true;
        button.disabled = false;
        part("upload-error").hidden = !message;
        part("upload-error").textContent = message;
    };
    if (type && !form.elements.mapper.value) return ended("Choose the entity or the mapper that reads this file, under File format.");
    let announced = 0;  // share of the file, announced in steps of a quarter
    request.upload.addEventListener("progress", (event) => {
        const share = event.total ? event.loaded / event.total : 0;
        form.querySelector("progress").value = share;
        part("sent").textContent = `${amount(event.loaded)} of ${amount(event.total)}`;
        if (share >= announced + 0.25) {
            announced = Math.floor(share * 4) / 4;
            part("sent-status").textContent = `${announced * 100} % sent`;
        }
    });
    request.addEventListener("load", () => {
        let answer = {};
        try { answer = JSON.parse(request.responseText); } catch { /* not an answer of the service */ }
        if (request.status === 401) return location.reload();
        if (answer.importId) location.href = form.dataset.report.replace("/_", `/${answer.importId}`);
        else ended(answer.detail ? answer.detail[0].toUpperCase() + answer.detail.slice(1) : `The service answered with status ${request.status}.`);
    });
    request.addEventListener("error", () => ended("The connection ended before the whole file was sent. If the service refused the file, the list below says why."));
    request.addEventListener("abort", () => ended("Stopped. Nothing was written."));
    part("stop").onclick = () => request.abort();
    part("upload-error").hidden = true;
    part("sending").hidden = part("stop").hidden = false;
    button.disabled = true;
    request.send(file);
}

function amount(bytes) {
    return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

// Escape closes open confirmations and choices; a click elsewhere closes choices.
function confirmations() {
    document.addEventListener("keydown", (event) => {
        if (event.key !== "Escape") return;
        for (const each of $$("details:is(.confirm, .pop)[open]")) {
            each.open = false;
            each.querySelector("summary").focus();
        }
    });
    document.addEventListener("click", ({ target }) => {
        for (const each of $$("details.pop[open]")) if (!each.contains(target)) each.open = false;
    });
}

// The key / leads to the search over all data.
function searchKey() {
    document.addEventListener("keydown", (event) => {
        if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey) return;
        if (event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]")) return;
        const field = $$("[data-find]").find((each) => each.checkVisibility());
        if (!field) return;
        event.preventDefault();
        field.select();
    });
}

// A picked time is one of the browser's zone, and written with its distance from UTC; without this script it is in UTC.
function pickedTimes() {
    for (const field of $$("[data-picks]")) {
        field.removeAttribute("name");
        const zone = field.closest(".field").querySelector("[data-zone]");
        zone.textContent = `(${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
        field.addEventListener("input", () => {
            if (!field.value) return;
            const minutes = -new Date(field.value).getTimezoneOffset();
            const [hours, rest] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((each) => `${each}`.padStart(2, "0"));
            document.getElementById(field.dataset.picks).value = `${field.value}${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
        });
    }
}

// A click on a reference in a table shows the row below it, a second one hides it; with another key or button it leads to its page.
function references() {
    document.addEventListener("click", async (event) => {
        const link = event.target.closest("table a.ref, .peek a.ref");
        if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        const row = link.closest("tr"), open = row.nextElementSibling;
        const inside = row.classList.contains("peek") ? row : open?.classList.contains("peek") ? open : null;
        if (inside && inside.dataset.of === link.href) return inside.remove();
        try {
            const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            const [title, fields] = [page.querySelector("h1"), page.querySelector("#fields .facts")];
            if (answer.redirected || !fields) throw new Error("not a row");
            const shown = inside ?? document.createElement("tr");
            shown.className = "peek";
            shown.dataset.of = link.href;
            const cell = Object.assign(document.createElement("td"), { colSpan: row.closest("table").rows[0].cells.length });
            const heading = Object.assign(document.createElement("a"), { href: link.href });
            heading.append(...title.childNodes);
            const said = document.createElement("div");
            said.setAttribute("role", "status");
            said.append(heading, fields);
            cell.append(said);
            shown.replaceChildren(cell);
            if (!inside) row.after(shown);
        } catch {
            location.assign(link.href);
        }
    });
}

// Shows the page of a form anew when one of the fields that it depends on changes; the focus stays.
function renewedForms() {
    let running = null;
    document.addEventListener("change", async ({ target }) => {
        if (!target.form?.dataset.renewedBy?.split(" ").includes(target.name)) return;
        const url = new URL(target.form.action);
        url.search = new URLSearchParams(new FormData(target.form));
        running?.abort();
        running = new AbortController();
        try {
            const answer = await fetch(url, { headers: { Accept: "text/html" }, signal: running.signal });
            if (answer.redirected) return location.assign(url);
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            history.replaceState(null, "", url);
            document.body.replaceWith(page.body);
            document.getElementById(target.id)?.focus();
            copyButtons();
        } catch (error) {
            if (error.name !== "AbortError") location.assign(url);
        }
    });
}

// Adds the time in the zone of the browser to each time in UTC, also to those that come later.
function localTimes() {
    const format = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });  // 2026-11-22 23:41
    const show = (time) => {
        const [at, hint] = [new Date(time.dateTime), time.querySelector(".hint")];
        if (!hint || "local" in time.dataset || !at.getTimezoneOffset()) return;
        time.dataset.local = "";
        const [day, minute] = format.format(at).split(" ");
        hint.textContent = `${time.dateTime.startsWith(day) ? "" : `${day.slice(5)} `}${minute} local, ${hint.textContent}`;
    };
    $$("time").forEach(show);
    new MutationObserver((changes) => {
        for (const change of changes)
            for (const node of change.addedNodes)
                if (node.nodeType === Node.ELEMENT_NODE) (node.matches("time") ? [node] : $$("time", node)).forEach(show);
    }).observe(document.documentElement, { childList: true, subtree: true });
}

copyButtons();
localTimes();
renewedForms();
dependentFields();
uploads();
sessions();
confirmations();
searchKey();
pickedTimes();
references();
replaceAddress();
focusFirst();
keepFresh();
