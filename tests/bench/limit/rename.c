/* The limit of an acknowledgement: reads names, and renames each from one directory into the other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    static char name[256];
    if (argc < 3) return 2;
    int from = open(argv[1], O_RDONLY | O_DIRECTORY), to = open(argv[2], O_RDONLY | O_DIRECTORY);
    while (fgets(name, sizeof name, stdin)) {
        name[strcspn(name, "\n")] = 0;
        if (renameat(from, name, to, name)) return 1;
    }
    return 0;
}
