/* detach's limit: double fork, setsid, exec, and a pipe that tells why an exec failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int why = 0, pipes[2], between;
    if (argc < 2 || pipe2(pipes, O_CLOEXEC)) return 125;
    if ((between = fork()) == 0) {
        setsid();
        if (fork() == 0) {
            int null = open("/dev/null", O_RDWR);
            dup2(null, 0), dup2(null, 1), dup2(null, 2);
            close(null);
            execvp(argv[1], argv + 1);
            why = errno;
            if (write(pipes[1], &why, sizeof why) < 0) _exit(1);
        }
        _exit(0);
    }
    close(pipes[1]);
    waitpid(between, NULL, 0);
    return read(pipes[0], &why, sizeof why) > 0 ? 127 : 0;
}
