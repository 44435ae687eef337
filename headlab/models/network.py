"""Whether the model hub can be reached, asked once instead of waiting for its client's retries."""

from __future__ import annotations

import functools
import socket
import urllib.request
from urllib.parse import urlsplit


@functools.cache
def hub_is_reachable() -> bool:
    """False where the hub is switched off (HF_HUB_OFFLINE) or its address cannot even be looked up."""
    from huggingface_hub import constants

    if constants.is_offline_mode() if hasattr(constants, "is_offline_mode") else constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies():
        return True  # the proxy looks the address up
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return False
    return True
