"""The HTML page of a set of audited networks."""

from creditscope.render.html.network import Network, networks
from creditscope.render.html.page import html_page

__all__ = ["Network", "html_page", "networks"]
