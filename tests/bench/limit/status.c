/* The limit of a poll: open, read, write. */
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char word[64];
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    ssize_t length = read(file, word, sizeof word);
    return length <= 0 || write(1, word, length) != length;
}
