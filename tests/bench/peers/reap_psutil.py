"""The recipe of psutil's manual: terminate the children, wait, kill what is left."""
import sys

import psutil

root = psutil.Process(int(sys.argv[1]))
family = root.children(recursive=True) + [root]
for process in family:
    try:
        process.terminate()
    except psutil.NoSuchProcess:
        pass
_, alive = psutil.wait_procs(family, timeout=5)
for process in alive:
    process.kill()
