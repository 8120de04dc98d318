// The mapper language for CodeMirror: colours of its words, indentation, and the block that a place is in.
"use strict";

CodeMirror.defineMode("mapper", (config) => {
    const KEYWORDS = /^(?:and|or|not)$/;
    const ATOMS = /^(?:true|false|null)$/;

    function quoted(stream, quote, style) {
        stream.next();
        while (!stream.eol()) if (stream.next() === quote) {
            if (stream.peek() !== quote) return style;
            stream.next();
        }
        return "error";  // no quotes at the end of the line
    }

    function word(stream, state) {
        stream.match(/^[^\W\d]\w*(?:\.[^\W\d]\w*)*/u);
        const name = stream.current();
        if (!state.begun) {
            state.begun = true;
            return name === "type" ? "keyword" : "error";
        }
        if (state.format === null) {
            state.format = name;
            return "atom";
        }
        if (KEYWORDS.test(name)) return "keyword";
        if (ATOMS.test(name)) return "atom";
        return stream.match(/^\s*\(/, false) ? "builtin" : "def";
    }

    function template(stream) {
        if (stream.match(/^\{#.*?#\}/)) return "comment";
        if (stream.match(/^(?:\{\{.*?\}\}|\{%.*?%\})/)) return "builtin";
        stream.next();
        stream.eatWhile(/[^{]/);
        return null;
    }

    return {
        startState: () => ({ begun: false, format: null, depth: 0 }),
        token(stream, state) {
            if (state.format === "template" && !stream.sol() && stream.lineOracle.line === 0) { stream.skipToEnd(); return "string"; }
            if (state.format === "template") return template(stream);
            if (stream.eatSpace()) return null;
            const next = stream.peek();
            if (next === "#") { stream.skipToEnd(); return "comment"; }
            if (next === "'") return quoted(stream, "'", "string-2");
            if (next === '"') return quoted(stream, '"', "string");
            if (stream.match(/^@[A-Za-z]\w*/)) return "meta";
            if (stream.match(/^[0-9]+(?:\.[0-9]+)?/)) return "number";
            if (/[^\W\d]/u.test(next)) return word(stream, state);
            stream.next();
            if (next === "{") state.depth += 1;
            if (next === "}") state.depth = Math.max(0, state.depth - 1);
            return /[{}()[\]]/.test(next) ? "bracket" : "operator";
        },
        indent: (state, after) => Math.max(0, state.depth - (/^\}/.test(after) ? 1 : 0)) * config.indentUnit,
        electricInput: /^\s*\}$/,
        lineComment: "#",
    };
});

// The names of the blocks around a place, from the outside in.
CodeMirror.mapperBlocks = (text) => {
    const blocks = [];
    for (const [, name, end] of text.matchAll(/#[^\n]*|"(?:[^"\n]|"")*"|([^\W\d]\w*)\s*=\s*'(?:[^'\n]|'')*'\s*\{|'(?:[^'\n]|'')*'|(\})/gu)) {
        if (name) blocks.push(name);
        else if (end) blocks.pop();
    }
    return blocks;
};
