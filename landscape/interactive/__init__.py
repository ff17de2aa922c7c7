"""The interactive page: one HTML file that needs neither a server nor the network."""

from .notebook import notebook_figure as notebook_figure
from .page import page_html as page_html
from .page import save_page as save_page
