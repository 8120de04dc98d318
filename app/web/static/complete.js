// Completes a condition in the language of /c: fields, operators, and what may follow. The field works without it.
"use strict";

const OPERATORS = {
    text: ["=", "!=", "like", "ilike", "in (", "is null", "is not null"],
    number: ["=", "!=", "<", "<=", ">", ">=", "between", "in (", "is null", "is not null"],
    reference: ["=", "!=", "in (", "is null", "is not null"],
    bool: ["= true", "= false", "is null"],
};
const EXAMPLES = { text: "'text'", like: "'%text%'", date: "'2026-01-31'", time: "'08:15:30'", timestamp: "'2026-01-31T12:00Z'", number: "12.5", uuid: "'01234567-89ab-cdef-0123-456789abcdef'" };
const TOKENS = /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|[-+]?\d[\w.]*|[^\W\d][\w.]*|<=|>=|<>|!=|[=<>(),]/gu;

// What may follow a text: "field", "operator", "value", "list" or "join"; the field that the last test is about, its operator.
function place(text) {
    let expects = "field", field = "", operator = "", isBetween = false;
    for (const [token] of text.matchAll(TOKENS)) {
        const word = token.toLowerCase();
        if (expects === "field") {
            if (word === "(" || word === "not") continue;
            field = token;
            expects = "operator";
        } else if (expects === "operator") {
            if (word === "not") continue;
            operator = word;
            isBetween = word === "between";
            expects = word === "in" ? "list" : "value";
        } else if (expects === "list") {
            if (word === ")") expects = "join";
        } else if (expects === "value") {
            if (operator === "is" && word === "not") continue;
            expects = "join";
        } else if (word === "and" || word === "or") {
            expects = isBetween && word === "and" ? "value" : "field";
            isBetween = false;
        }
    }
    return { expects, field, operator };
}

function completion(input, list) {
    const words = JSON.parse(list.dataset.words);  // [name, kind, beginning of a lookup]
    let options = [];
    let active = -1;

    // The word that is being typed, and what may stand in its place: [what is inserted, what is said about it].
    function choices() {
        const before = input.value.slice(0, input.selectionStart);
        if ((before.match(/'/g) ?? []).length % 2) return null;  // within a text
        const [typed] = /(?:[^\W\d][\w.]*|[<>!=]+)?$/u.exec(before);
        const { expects, field, operator } = place(before.slice(0, before.length - typed.length));
        const [, kind = "text", lookup = ""] = words.find(([name]) => name.toLowerCase() === field.toLowerCase()) ?? [];
        const found = {
            field: () => [...words.map(([name, about]) => [`${name} `, about]), ["not ", "the opposite"]],
            operator: () => (OPERATORS[kind] ?? OPERATORS.number).map((each) => [/\($/.test(each) ? each : `${each} `, ""]),
            value: () => operator === "is" ? [["null ", ""], ["not null ", ""]] : kind === "bool" ? [["true ", ""], ["false ", ""]] : lookup ? [[lookup, "a lookup"]] : [["", EXAMPLES[/like/.test(operator) ? "like" : kind] ?? ""]],
            list: () => lookup ? [[lookup, "a lookup"], [") ", ""]] : [["", `${EXAMPLES[kind] ?? ""}, …`]],
            join: () => [["and ", "both"], ["or ", "one of them"]],
        }[expects]();
        return { typed, before, found: found.filter(([text]) => text.toLowerCase().startsWith(typed.toLowerCase()) && text.trim().toLowerCase() !== typed.toLowerCase()) };
    }

    function close() {
        list.hidden = true;
        active = -1;
        input.setAttribute("aria-expanded", "false");
        input.removeAttribute("aria-activedescendant");
    }

    function show() {
        const now = choices();
        close();
        if (!now?.found.length) return;
        options = now.found.map(([text, about], number) => {
            const item = Object.assign(document.createElement("li"), { id: `${list.id}-${number}`, className: text ? "" : "example" });
            item.setAttribute("role", "option");
            item.setAttribute("aria-selected", "false");
            item.append(text.trim() || "such as", Object.assign(document.createElement("span"), { className: "hint", textContent: about }));
            item.addEventListener("mousedown", (event) => { event.preventDefault(); accept(number); });
            return { item, text, from: now.before.length - now.typed.length };
        });
        list.replaceChildren(...options.map(({ item }) => item));
        list.hidden = false;
        input.setAttribute("aria-expanded", "true");
    }

    function move(step) {
        options[active]?.item.setAttribute("aria-selected", "false");
        active = (active + step + options.length + (active < 0 && step < 0 ? 1 : 0)) % options.length;
        const { item } = options[active];
        item.setAttribute("aria-selected", "true");
        item.scrollIntoView({ block: "nearest" });
        input.setAttribute("aria-activedescendant", item.id);
    }

    function accept(number) {
        const { text, from } = options[number];
        if (!text) return close();
        input.setRangeText(text, from, input.selectionStart, "end");
        show();
    }

    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", list.id);
    input.setAttribute("aria-expanded", "false");
    input.addEventListener("input", show);
    input.addEventListener("click", show);
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
        if (list.hidden && (event.key === "ArrowDown" || (event.ctrlKey && event.key === " "))) {
            event.preventDefault();
            show();
        } else if (!list.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
            event.preventDefault();
            move(event.key === "ArrowDown" ? 1 : -1);
        } else if (!list.hidden && active >= 0 && (event.key === "Enter" || event.key === "Tab")) {
            event.preventDefault();
            accept(active);
        } else if (!list.hidden && event.key === "Escape") {
            event.preventDefault();
            close();
        }
    });
}

for (const list of document.querySelectorAll("[data-words][data-for]")) completion(document.getElementById(list.dataset.for), list);
