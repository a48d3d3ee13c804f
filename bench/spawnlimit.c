/* The limit of the machine: how many `/bin/sh -c true` can be started and reaped, one after the other in each of
 * PROCESSES processes, by a program that does nothing else.  usage: spawnlimit PROCESSES JOBS */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int processes = atoi(argv[1]), jobs = atoi(argv[2]);
    char *command[] = {"/bin/sh", "-c", "true", NULL};
    for (int process = 0; process < processes; process++) {
        if (fork())
            continue;
        for (int job = process; job < jobs; job += processes) {
            pid_t pid;
            int status;
            if (posix_spawn(&pid, command[0], NULL, NULL, command, environ) || waitpid(pid, &status, 0) != pid || status)
                _exit(1);
        }
        _exit(0);
    }
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
