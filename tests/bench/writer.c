/* Writes `writer BLOCK TOTAL` bytes to standard output, BLOCK at a time. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long block = atol(argv[1]), total = atol(argv[2]);
    char *text = malloc(block);
    memset(text, 'x', block);
    text[block - 1] = '\n';
    for (; total > 0; total -= block)
        if (write(1, text, block) != block) return 1;
    return 0;
}
