"""The same on job directories: status, meta.json and result.json of each."""
import json
import sys
from pathlib import Path

for job in sorted(Path(sys.argv[1]).iterdir()):
    if (job / "status").read_text().strip() in ("claimed", "running"):
        continue
    json.loads((job / "meta.json").read_text())
    print(json.dumps(json.loads((job / "result.json").read_text())))
