"""Rows that stay on disk: sources of blocks, one pass of facts, shuffled minibatches."""

from wideangle.streaming.csr import CsrRows
from wideangle.streaming.dask import DaskRows
from wideangle.streaming.parquet import ParquetRows
from wideangle.streaming.sources import NpyRows, RowSource

__all__ = ["CsrRows", "DaskRows", "NpyRows", "ParquetRows", "RowSource"]
