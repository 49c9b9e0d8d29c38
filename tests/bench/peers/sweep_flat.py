"""The sweep of the detached-worker seed: one flat file a result, each parsed and sent on. Nothing is removed, so that it
can be measured again."""
import json
import sys
from pathlib import Path

for f in sorted(Path(sys.argv[1]).glob("*.json")):
    result = json.loads(f.read_text())
    print(json.dumps(result))
