/* Runs one command after the other and says what each took: a small process, so that a spawn costs little and the
 * same for all.
 *
 * A line of standard input is a command, its words separated by tabs; a first word `<FILE` or `>FILE` gives it other
 * streams than /dev/null, `&` asks not to wait for what it leaves behind. The answer is one line: exit status,
 * nanoseconds until it had ended, nanoseconds until all that it left behind had ended too, peak memory in KiB.
 *
 * As a subreaper this process is the parent of whatever is orphaned below it, so ECHILD proves that nothing is left. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(void) {
    static char line[1 << 16];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (fgets(line, sizeof line, stdin)) {
        char *in = "/dev/null", *out = "/dev/null", *words[256];
        int n = 0, stay = 1;
        line[strcspn(line, "\n")] = 0;
        for (char *word = strtok(line, "\t"); word && n < 255; word = strtok(NULL, "\t")) {
            if (n == 0 && *word == '<') in = word + 1;
            else if (n == 0 && *word == '>') out = word + 1;
            else if (n == 0 && *word == '&') stay = 0;
            else words[n++] = word;
        }
        words[n] = NULL;
        posix_spawn_file_actions_t streams;
        posix_spawn_file_actions_init(&streams);
        posix_spawn_file_actions_addopen(&streams, 0, in, O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&streams, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0666);

        pid_t child, ended;
        int status = 0, its = 0;
        struct rusage usage, used = {0};
        long long begun = now(), took = 0;
        if (n == 0 || posix_spawnp(&child, words[0], &streams, NULL, words, environ) != 0) {
            puts("127 0 0 0");
            fflush(stdout);
            continue;
        }
        do {
            ended = wait4(-1, &status, 0, &usage);
            if (ended == child) {
                took = now() - begun;
                its = status;
                used = usage;
            }
        } while (ended != -1 && (took == 0 || stay));
        posix_spawn_file_actions_destroy(&streams);
        printf("%d %lld %lld %ld\n", WIFEXITED(its) ? WEXITSTATUS(its) : 128 + WTERMSIG(its), took, now() - begun,
               used.ru_maxrss);
        fflush(stdout);
    }
}
