"""The interactive page: one HTML file that needs neither a server nor the network."""

from .notebook import notebook_figure
from .page import page_html, save_page

__all__ = ["notebook_figure", "page_html", "save_page"]
