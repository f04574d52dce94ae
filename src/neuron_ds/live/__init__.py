"""One live picture of the devices, which the terminal and the web page both draw: Samples in, Frames out.

``picture.Live`` makes the Frames, ``source.LiveSource`` the Samples. Nothing is imported here: ``figures`` is also for
those who read recordings, and they need nothing that looks at this host.
"""
