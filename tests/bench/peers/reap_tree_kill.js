// npm's tree-kill.
require("tree-kill")(Number(process.argv[2]), "SIGTERM", (error) => process.exit(error ? 1 : 0));
