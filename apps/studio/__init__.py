"""The studio's pages in gradio, one module a tab; what they call is ``t2x.studio``.

``app.build`` makes the page, ``desk.Desk`` holds what its tabs share. A tab is a function
``tab(desk)`` that is called inside ``gr.Tab``: it lays its components out and wires them.
"""

from __future__ import annotations

from .gradio_stubs import leave_stubs

leave_stubs()  # before any module of this package imports gradio
