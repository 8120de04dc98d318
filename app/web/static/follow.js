// The page of changes follows the log while it is open: an event says that there is more, the page itself has the rows.
"use strict";

const PAUSE = 700;  // milliseconds between two fetches of the page
const RETRY = 5000;  // after an answer that is not a stream

function follow(control) {
    const [state, button] = [control.querySelector("[data-state]"), control.querySelector("button")];
    let position = control.dataset.after;  // of the last event
    let source = null;
    let fetching = null;
    let isBehind = false;
    let isPaused = false;

    const show = (name, text) => {
        control.dataset.is = name;
        if (state.textContent !== text) state.textContent = text;
    };

    const open = () => {
        if (source || isPaused || document.hidden) return;
        source = new EventSource(`${control.dataset.follow}&after=${position}`);
        source.onopen = () => show("live", "Live");
        source.onmessage = (event) => {
            position = event.lastEventId;
            isBehind = true;
            fetching ??= setTimeout(refresh, PAUSE);
        };
        source.onerror = () => {
            show("waiting", "Connecting again");
            if (source.readyState !== EventSource.CLOSED) return;  // else it tries again by itself
            close();
            refresh();  // says so if the session has ended, and where to begin if the log is another one
            setTimeout(open, RETRY);
        };
    };

    // A page that is not shown needs no connection, of which a browser has few.
    const close = () => {
        source?.close();
        source = null;
    };

    const refresh = async () => {
        isBehind = false;
        try {
            const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
            if (answer.redirected || hasEnded(answer)) {
                isPaused = true;
                close();
                control.hidden = true;
                return (answer.redirected ? signedOut : noAccess)(document.getElementById("live"));
            }
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            const fresh = page.getElementById("live");
            if (answer.ok && fresh) {
                showRows(document.getElementById("live"), fresh);
                if (!source) position = page.querySelector("[data-follow]").dataset.after;
            }
        } catch { /* the service does not answer: the next event tries again */ }
        fetching = isBehind ? setTimeout(refresh, PAUSE) : null;  // events that came meanwhile
    };

    button.addEventListener("click", () => {
        isPaused = !isPaused;
        button.textContent = isPaused ? "Resume" : "Pause";
        if (isPaused) {
            close();
            show("paused", "Paused");
        } else open();
    });
    document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    control.hidden = false;
    open();
}

// Adds new rows on top and drops those that are no longer on the page.  The others stay, with the focus and the selection in them.
function showRows(live, fresh) {
    const [body, freshBody] = [live, fresh].map((each) => each.querySelector("tbody"));
    if (!body || !freshBody) return live.replaceWith(fresh);
    const shown = new Map([...body.rows].map((row) => [row.dataset.id, row]));
    const rows = [...freshBody.rows].map((row) => {
        const before = shown.get(row.dataset.id);
        if (!before) row.classList.add("new");
        else before.querySelector("time").replaceWith(row.querySelector("time"));
        return before ?? row;
    });
    rows.forEach((row, place) => { if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null); });
    while (body.rows.length > rows.length) body.lastElementChild.remove();
    live.querySelector("nav").replaceWith(fresh.querySelector("nav"));
}

document.querySelectorAll("[data-follow]").forEach(follow);
