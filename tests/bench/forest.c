/* Grows a tree of sleeping processes below an orphan: `forest LEVELS WIDTH` gives every process WIDTH children down to
 * LEVELS levels. Prints the root's pid once all are there. The whole tree is one process group. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void grow(int levels, int width, int there) {
    for (int i = 0; levels && i < width; i++)
        if (fork() == 0) {
            grow(levels - 1, width, there);
            return;
        }
    if (write(there, "", 1) < 0) _exit(1);
}

int main(int argc, char **argv) {
    int there[2];
    if (argc < 3 || pipe(there)) return 2;
    int levels = atoi(argv[1]), width = atoi(argv[2]);
    pid_t root = fork();
    if (root == 0) {
        setsid();
        close(there[0]);
        grow(levels, width, there[1]);
        close(there[1]);
        close(0), close(1), close(2);
        for (;;) pause();
    }
    close(there[1]);
    for (char byte; read(there[0], &byte, 1) == 1;) continue;
    printf("%d\n", root);
    return 0;
}
