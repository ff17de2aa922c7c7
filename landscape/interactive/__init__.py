"""The interactive page: one HTML file that needs neither a server nor the network."""

from .page import page_html, save_page

__all__ = ["page_html", "save_page"]
