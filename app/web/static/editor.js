// The mapper editor: CodeMirror over the form's text, words to complete and insert, errors at their line, the preview as one types.
"use strict";

const PAUSE = 600;  // milliseconds without typing, after which the mapper is checked

const form = document.querySelector("form[data-editor]");
const area = form.elements.text;
const state = form.querySelector("[data-state]");
const editor = CodeMirror.fromTextArea(area, {
    mode: "mapper",
    theme: "bds",
    lineNumbers: true,
    gutters: ["signs", "CodeMirror-linenumbers"],
    matchBrackets: true,
    indentUnit: 4,
    screenReaderLabel: "Mapper",
    // the Tab key leaves the editor, as it leaves every other field
    extraKeys: { Tab: false, "Shift-Tab": false, "Ctrl-Space": complete, "Ctrl-Enter": () => check("preview") },
});

// Problems -------------------------------------------------------------------------------------------------------------------------

let shown = [];

// Shows the problem that a page of this form has, at its line.
function showProblem(page) {
    for (const clear of shown) clear();
    shown = [];
    const field = page.querySelector("textarea[name=text]");
    const message = (page.querySelector("#text-wrong .wrong") ?? page.querySelector("#text-wrong"))?.textContent.trim() ?? "";
    editor.getInputField().setAttribute("aria-invalid", message ? "true" : "false");
    if (!field.dataset.line) return message;  // else it is shown below the line
    const line = Math.min(Number(field.dataset.line), editor.lineCount()) - 1;
    const from = { line, ch: Number(field.dataset.column || 1) - 1 };
    const widget = Object.assign(document.createElement("div"), { className: "line-problem", textContent: message.replace(/^line \d+, column \d+: /, "") });
    const sign = Object.assign(document.createElement("span"), { className: "line-sign", textContent: "●", title: message });
    editor.operation(() => {
        const handle = editor.addLineClass(line, "background", "problem-line");
        editor.setGutterMarker(line, "signs", sign);
        const below = editor.addLineWidget(line, widget, { noHScroll: true });
        const word = editor.findWordAt(from);
        const mark = editor.markText(from, { line, ch: Math.max(word.head.ch, from.ch + 1) }, { className: "problem-mark" });
        shown.push(() => {
            editor.removeLineClass(handle, "background", "problem-line");
            editor.clearGutter("signs");
            below.clear();
            mark.clear();
        });
    });
    return `Error in line ${line + 1}.`;
}

// Removes a problem that the page came with, above the form and at its field.
function clearProblem(name) {
    document.getElementById(`${name}-wrong`)?.remove();
    form.elements[name].removeAttribute("aria-invalid");
    const item = document.querySelector(`.problems a[href="#${name}"]`)?.closest("li");
    const box = item?.closest(".problems");
    item?.remove();
    const left = box?.querySelectorAll("li").length;
    if (left) box.querySelector("strong").textContent = left === 1 ? "There is a problem" : `There are ${left} problems`;
    else box?.remove();
}

// Check and preview ----------------------------------------------------------------------------------------------------------------

let running = null;
let waiting = null;

async function check(what) {
    clearTimeout(waiting);
    editor.save();
    running?.abort();
    running = new AbortController();
    const body = new URLSearchParams(new FormData(form));
    body.set("do", what);
    try {
        const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "text/html" }, signal: running.signal });
        if (answer.redirected) {
            state.textContent = "Your session has ended: copy your text, then sign in again.";
            return;
        }
        show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
        if (error.name !== "AbortError") state.textContent = "The service does not answer.";
    }
}

function show(page) {
    if (!page.querySelector("form[data-editor]")) {
        state.textContent = page.querySelector("h1")?.textContent ?? "";
        return;
    }
    const message = showProblem(page);
    if (area.dataset.line) clearProblem("text");  // what is wrong now is shown at its line
    if (page.querySelector("#source-wrong") === null) clearProblem("source");
    const source = page.querySelector("#source-wrong")?.textContent ?? "";
    const result = document.getElementById("result");
    if (message || source) result.classList.add("old");  // of the text before
    else {
        const fresh = page.getElementById("result");
        fresh.querySelector("[data-focus]")?.removeAttribute("data-focus");
        const top = result.querySelector("pre")?.scrollTop ?? 0;
        result.replaceWith(fresh);
        if (fresh.querySelector("pre")) fresh.querySelector("pre").scrollTop = top;
    }
    showSource(source);
    state.textContent = message || source || "No errors.";
    state.classList.toggle("bad", Boolean(message || source));
}

function showSource(message) {
    const field = form.elements.source;
    document.getElementById("source-wrong")?.remove();
    field.setAttribute("aria-invalid", message ? "true" : "false");
    if (message) field.after(Object.assign(document.createElement("p"), { id: "source-wrong", className: "wrong", textContent: message }));
}

function later() {
    clearTimeout(waiting);
    waiting = setTimeout(() => check("check"), PAUSE);
}

// Words ----------------------------------------------------------------------------------------------------------------------------

const words = document.querySelector(".words");
const wordsOf = (root) => [...(root?.querySelectorAll("[data-word]") ?? [])];

// The list of the entity whose block the cursor is in; null outside of all blocks.
function entityAt(cursor) {
    const [top, ...inner] = CodeMirror.mapperBlocks(editor.getRange({ line: 0, ch: 0 }, cursor));
    let list = top && words.querySelector(`[data-entity="${CSS.escape(top)}"]`);
    for (const name of inner) {
        const child = wordsOf(list).find((each) => each.dataset.word === name)?.dataset.child;
        list = child && words.querySelector(`[data-entity="${CSS.escape(child)}"]`);
    }
    return list || null;
}

function complete() {
    editor.showHint({ hint: hints, completeSingle: false });
}

function hints() {
    const cursor = editor.getCursor();
    const before = editor.getLine(cursor.line).slice(0, cursor.ch);
    const [typed] = /@?[\w.]*$/u.exec(before);
    const start = before.slice(0, before.length - typed.length);
    if (/'[^']*$/.test(start.replace(/'[^']*'/g, "").replace(/"[^"]*"/g, ""))) return null;  // within a path
    const list = entityAt(cursor);
    const isValue = /=[^{]*$/.test(start);
    const found = isValue ? wordsOf(words.querySelector("[data-functions]"))
        : list ? wordsOf(list)
        : [...wordsOf(words.querySelector("[data-settings]")), ...[...words.querySelectorAll("[data-entity]")].map((each) => each.querySelector("summary"))];
    const named = found.map((each) => ({ word: each.dataset.word ?? each.textContent, insert: each.dataset.insert ?? `${each.textContent} = '|' {\n}`, about: each.nextElementSibling?.matches(".hint") ? each.nextElementSibling.textContent : "" }));
    return {
        from: { line: cursor.line, ch: start.length },
        to: cursor,
        list: named.filter(({ word }) => word.toLowerCase().startsWith(typed.toLowerCase())).map(({ word, insert: text, about }) => ({
            text: word,
            hint: (_, data) => insert(text, data.from, data.to),
            render: (item) => item.append(word, Object.assign(document.createElement("span"), { className: "about", textContent: about })),
        })),
    };
}

// Inserts a text; | in it is where the cursor goes.
function insert(text, from = editor.getCursor("from"), to = editor.getCursor("to")) {
    const at = text.indexOf("|");
    editor.operation(() => {
        editor.replaceRange(text.replace("|", ""), from, to, "+insert");
        const start = editor.indexFromPos(from);
        for (let line = from.line + 1; line <= editor.posFromIndex(start + text.length - 1).line; line++) editor.indentLine(line);
        editor.setCursor(editor.posFromIndex(start + (at < 0 ? text.length : at)));
    });
    editor.focus();
}

// A field begins a line, unless the cursor is at the beginning of one.
function insertWord(word) {
    const cursor = editor.getCursor();
    const isCall = Boolean(word.closest("[data-functions]"));
    const isOnLine = editor.getLine(cursor.line).slice(0, cursor.ch).trim() !== "";
    if (!isCall && isOnLine) {
        editor.setCursor({ line: cursor.line });
        editor.execCommand("newlineAndIndent");
    }
    insert(word.dataset.insert);
}

for (const word of wordsOf(words)) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "word", textContent: word.textContent });
    Object.assign(button.dataset, word.dataset);
    button.addEventListener("click", () => insertWord(button));
    word.replaceWith(button);
}

// Opens the list of the entity whose block the cursor is in.
let open = null;
function follow() {
    const list = entityAt(editor.getCursor());
    if (!list || list === open) return;
    if (open) open.open = false;
    list.open = true;
    open = list;
}

// Start ----------------------------------------------------------------------------------------------------------------------------

form.classList.add("editing");
form.querySelector("[data-keys]").hidden = words.querySelector("[data-words-hint]").hidden = false;
editor.getInputField().setAttribute("aria-describedby", "text-hint");
for (const each of document.querySelectorAll("label[for=text], a[href='#text']")) each.addEventListener("click", () => editor.focus());
showProblem(document);
if (area.dataset.line) editor.setCursor({ line: Number(area.dataset.line) - 1, ch: Number(area.dataset.column || 1) - 1 });
follow();
editor.on("change", later);
editor.on("cursorActivity", follow);
editor.on("inputRead", (_, { text }) => { if (/^[\w@]$/.test(text[0] ?? "") && text.length === 1) complete(); });
form.elements.source.addEventListener("input", later);
form.elements.name?.addEventListener("input", () => clearProblem("name"));
form.addEventListener("submit", (event) => {
    if (event.submitter?.value !== "preview") return;
    event.preventDefault();
    check("preview");
});
