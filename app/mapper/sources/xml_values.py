"""Values and nested elements of an XML element, at the paths of a mapper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lxml import etree

from app.mapper.language import xpath
from app.mapper.language.expressions import Getter
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import InvalidValue
from app.mapper.sources.base import FindElements


class XmlElement:
    """An element with an index of its first children by local name, which is built at the first use."""

    __slots__ = ("_children", "element")

    def __init__(self, element: Any) -> None:
        self.element = element
        self._children: dict[str, Any] | None = None

    def child(self, name: str) -> Any:
        """The first child element with a local name, or None."""
        children = self._children
        if children is None:
            children = self._children = {}
            for each in self.element:
                tag = each.tag
                if tag.__class__ is str:
                    children.setdefault(tag.rpartition("}")[2] if tag[0] == "{" else tag, each)
        return children.get(name)


class XmlPaths:
    """Makes getters of a mapper's paths; plain paths are followed without XPath."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self._namespaces = namespaces

    def value(self, text: str) -> Getter:
        """The getter of a path: None if the element or attribute is empty, ABSENT if it is missing."""
        plain = xpath.plain(text)
        if plain is None:
            return _evaluated(xpath.compile(text, self._namespaces, 1 << 30))
        content = _attribute(plain.attribute) if plain.attribute else _own_text if plain.text_only else _text
        if not plain.steps:
            return lambda node: content(node.element)
        first, *rest = plain.steps

        def get(node: XmlElement) -> Any:
            element = node.child(first)
            for step in rest:
                if element is None:
                    return ABSENT
                element = XmlElement(element).child(step)
            return ABSENT if element is None else content(element)

        return get

    def elements(self, text: str) -> FindElements:
        """Finds the elements of a nested block; ABSENT if their container is missing.  The finder raises InvalidValue."""
        evaluate = xpath.compile(text, self._namespaces, 1 << 30)
        containers = [xpath.compile(each, self._namespaces, 1 << 30) for each in xpath.containers(text)]

        def find(node: XmlElement) -> Any:
            found = _result(evaluate, node)
            if not isinstance(found, list):
                return []
            if not found and not any(_result(container, node) for container in containers):
                return ABSENT
            return [XmlElement(each) for each in found if hasattr(each, "tag")]

        return find


def local_name(element: Any) -> str:
    """An element's name without its namespace."""
    tag: str = element.tag
    return tag.rpartition("}")[2] if tag[0] == "{" else tag


def _text(element: Any) -> Any:
    return (element.text if not len(element) else "".join(element.itertext())) or None


def _own_text(element: Any) -> Any:
    return element.text or None


def _attribute(name: str) -> Getter:
    def get(element: Any) -> Any:
        value = element.get(name)
        if value is None:
            value = next((v for k, v in element.attrib.items() if k.rpartition("}")[2] == name), ABSENT)
        return value or (value if value is ABSENT else None)

    return get


def _evaluated(evaluate: Any) -> Getter:
    """The getter of an XPath: its string value, for a node set that of the first node."""

    def get(node: XmlElement) -> Any:
        found = _result(evaluate, node)
        if isinstance(found, list):
            if not found:
                return ABSENT
            found = found[0] if isinstance(found[0], str) else _text(found[0])
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, float):
            return None if found != found else str(int(found)) if found.is_integer() else repr(found)
        return found or None

    return get


def _result(evaluate: Any, node: XmlElement) -> Any:
    """Evaluate an XPath.  Raises InvalidValue."""
    try:
        return evaluate(node.element)
    except etree.XPathError as error:
        raise InvalidValue(f"the path cannot be evaluated: {error}") from None
