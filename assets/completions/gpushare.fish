# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gpushare_global_optspecs
    string join \n h/help V/version
end

function __fish_gpushare_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gpushare_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gpushare_using_subcommand
    set -l cmd (__fish_gpushare_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gpushare -n "__fish_gpushare_needs_command" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_needs_command" -s V -l version -d 'Print version'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "run" -d 'Start a program under gpushare: counted, limited, and queued for the GPU when others want it'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "ps" -d 'Show every process on the GPUs: memory held, quota, lock, denials'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "quota" -d 'Set or show memory quotas'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "policy" -d 'Set or show lock policies'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "group" -d 'Create, change, remove or show groups of processes that share a quota'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "set" -d 'Change weight, priority or cap of a running process, what it does when memory is refused, or when it is evicted'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "pause" -d 'Keep a process off the GPU until it is resumed; its memory stays allocated, or leaves the GPU with --evict'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "resume" -d 'Let a paused process use the GPU again'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "boost" -d 'Put a process first for a while: a priority that ends by itself'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "kill" -d 'Send a signal to processes: TERM, unless another is named'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "undo" -d 'Undo the newest edit, or the one of a number'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "audit" -d 'Show who changed what, when and why, newest last'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "events" -d 'Show what happened to the processes and the lock, oldest first'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "trace" -d 'Record driver calls, and show them in Perfetto, as a table or as Alnair\'s logs'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "pick" -d 'Print the UUID of the least busy device and hold a short claim on it'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "mps" -d 'Start, stop and show NVIDIA\'s MPS for this directory: programs run at once on one GPU'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "wrap" -d 'Make an executable always start through gpushare run, with these options'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "unwrap" -d 'Remove the wrapper from an executable'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "apply" -d 'Set quotas, groups, policies and rules from a TOML file'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "metrics" -d 'Write the figures for Prometheus, once or over HTTP'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "export-config" -d 'Write policies, limits, groups and rules in force as a file for gpushare apply'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "doctor" -d 'Check library, driver, NVML, kernel and segments, and say how to fix what is wrong'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "advise" -d 'Say which policy would serve the jobs of each GPU better, and what that would cost'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "demo" -d 'Start four workloads on one GPU, real or simulated, and open the dashboard on them'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "experiment" -d 'Measure ways to share a GPU side by side: your programs, one condition after another'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "serve" -d 'Serve the shared segments to the users of this machine, as root'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "cdi" -d 'Let podman, docker and containerd give containers a share of a GPU'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "slurm" -d 'Limit the jobs of Slurm to their part of a GPU: --gres=shard:N and --gpu-mem=8G'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "dra" -d 'Have claims of Kubernetes hold on this node: their memory becomes a quota, their time slices a weight'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "compat" -d 'Make links to this program under the names of older tools: getgpu, cudawrap, create_cudawrap, cudarun'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "init" -d 'Make your own shared segments; with --group set up a broker for all users of the machine'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "completions" -d 'Write shell completions to standard output'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "man" -d 'Write the manual page, or with --dir one page for each verb'
complete -c gpushare -n "__fish_gpushare_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l gpu -d 'Run on one device: its number, its UUID, or `auto` for the least busy one' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l memory -d 'Quota: a size (8GiB, 512M), a share of the device (25%), none, or one per device (0:8GiB,1:50%)' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l on-full -d 'What an allocation does that finds no room: fail at once, wait for it, or wait=TIME (wait=10m) [default: fail]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l evict-after -d 'When it has not called the driver for this long, evict its memory to the host until its next call [default: never]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l weight -d 'Share of the device\'s time relative to others under order=fair, 1 to 1000 [default: 100]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l priority -d 'Priority under order=priority, -20 to 19; the highest gets the lock next [default: 0]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l cap -d 'Upper limit of its share of the device\'s time, 1% to 100%' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l group -d 'Join this group and use its quota, weight and cap' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l gang -d 'Name of the job whose processes have their turns on all their devices together, or none' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l name -d 'Label of the program in all displays; name:LABEL selects it as a target' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l policy -d 'Lock policy unless the operator has set one, such as "timeslice=5ms order=fair"' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l sim -d 'Run on the simulated GPU; SCENARIO is a name or a TOML file [default: two-gpus]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l mps-threads -d 'Under MPS, upper limit of its share of the SMs, 1% to 100%' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l trace -d 'Trace the program and its children; after it ends, FILE holds JSON for ui.perfetto.dev' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l timeout -d 'Give up after this time [default: wait as long as it takes]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l swappable -d 'Make its allocations so that an eviction takes seconds: a copy at the speed of the link, and no checkpoint'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l mps -d 'Start the program only if it joins the MPS that gpushare mps start runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l no-mps -d 'Do not join the MPS that gpushare mps start runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l best-effort -d 'Start the program even if --memory, --cap, --group or --policy cannot be enforced, with a warning'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l wait -d 'Wait until a GPU may be had: one with the memory that --memory asks for, or with --exclusive one that no process uses'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -l exclusive -d 'Take a GPU that no process uses, and keep other picks away from it until the program ends'
complete -c gpushare -n "__fish_gpushare_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l filter -d 'Only those that match: terms such as user=alice, used>4G or name~train, or a word to look for' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l columns -d 'These columns, by key; gpushare-top(1) lists them. Those about the last seconds have no value here' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l hosts -d 'Of other machines, apart by commas: as ssh takes them, or http://HOST:PORT of gpushare metrics --listen. With --json an object for each: host, wrong (why it does not answer, or null) and processes' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l watch -d 'Show it again every so many seconds, until ^C' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l count -d 'End after this many times' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -l json -d 'Write JSON: the key names the unit, null means no value'
complete -c gpushare -n "__fish_gpushare_using_subcommand ps" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and not __fish_seen_subcommand_from set show help" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and not __fish_seen_subcommand_from set show help" -f -a "set" -d 'Change a running process\'s quota, from its next allocation on'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and not __fish_seen_subcommand_from set show help" -f -a "show" -d 'Show every process\'s quota and where it comes from'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and not __fish_seen_subcommand_from set show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from set" -l gpu -d 'Only on this device (number or UUID) [default: every device of the target]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from set" -l for -d 'Revert automatically after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from set" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from set" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from show" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change a running process\'s quota, from its next allocation on'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show every process\'s quota and where it comes from'
complete -c gpushare -n "__fish_gpushare_using_subcommand quota; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and not __fish_seen_subcommand_from set show help" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and not __fish_seen_subcommand_from set show help" -f -a "set" -d 'Change a device\'s lock policy while programs run'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and not __fish_seen_subcommand_from set show help" -f -a "show" -d 'Show every device\'s lock policy'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and not __fish_seen_subcommand_from set show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from set" -l for -d 'Go back to the present policy and settings after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from set" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from set" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from show" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change a device\'s lock policy while programs run'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show every device\'s lock policy'
complete -c gpushare -n "__fish_gpushare_using_subcommand policy; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -f -a "create" -d 'Define a group; programs join it with gpushare run --group NAME'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -f -a "set" -d 'Change a group\'s settings, for present and future members'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -f -a "rm" -d 'Remove a group\'s settings; its members continue without them'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -f -a "show" -d 'Show the groups and their members'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and not __fish_seen_subcommand_from create set rm show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from create" -l for -d 'Go back to the present settings after this time; the group stays' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from create" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from create" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from set" -l for -d 'Go back to the present settings after this time; the group stays' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from set" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from set" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from rm" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from rm" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from show" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "create" -d 'Define a group; programs join it with gpushare run --group NAME'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "set" -d 'Change a group\'s settings, for present and future members'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove a group\'s settings; its members continue without them'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the groups and their members'
complete -c gpushare -n "__fish_gpushare_using_subcommand group; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand set" -l for -d 'Go back to the present settings after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand set" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand set" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand set" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand pause" -l for -d 'Let it go on after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand pause" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand pause" -l evict -d 'Move its memory to the host, so that others can use the room; it comes back at its first call after resume'
complete -c gpushare -n "__fish_gpushare_using_subcommand pause" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand resume" -l for -d 'Pause it again after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand resume" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand resume" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand resume" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand boost" -l for -d 'For how long' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand boost" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand boost" -l dry-run -d 'Show what would change, for how many processes, and which would be over quota; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand boost" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand kill" -s s -l signal -d 'The signal' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand kill" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand kill" -l dry-run -d 'Show which processes it would be sent to; send nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand kill" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand undo" -l last -d 'Undo the newest N edits instead' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand undo" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand undo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand audit" -s n -d 'Show only the newest N' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand audit" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand audit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand events" -s n -l last -d 'Only the newest N of what happened so far' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand events" -s f -l follow -d 'Go on with what happens from now on, until SIGINT or until the reader is gone'
complete -c gpushare -n "__fish_gpushare_using_subcommand events" -l json -d 'Write one JSON object for each event, on a line of its own'
complete -c gpushare -n "__fish_gpushare_using_subcommand events" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "start" -d 'Start recording the driver calls of running processes'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "stop" -d 'Stop recording; the records stay for export until trace rm'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "show" -d 'Show every trace: active, stopped, or left by a process that has ended'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "stats" -d 'Show count, total, longest and average time, and bytes of each driver call; also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "export" -d 'Export traces for Perfetto, as CSV or as Alnair\'s logs, also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "rm" -d 'Remove traces that have ended; active ones stay'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and not __fish_seen_subcommand_from start stop show stats export rm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from start" -l records -d 'Room for this many records, 1000 to 4000000 [default: 262144, in 8 MiB]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from start" -l buffer -d 'Size of the buffer in bytes instead, such as 64MiB; a record has 32 bytes' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from start" -l for -d 'Wait this long or until Ctrl-C, then stop the trace' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from start" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from stop" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from show" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from stats" -l sort -d 'Sort by this, largest first' -r -f -a "total\t''
calls\t''
longest\t''
mean\t''
bytes\t''"
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from stats" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from stats" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from export" -l format -d 'chrome: JSON that Perfetto loads. alnair: metrics.log and timeline.log. csv: a row for each record' -r -f -a "chrome\t''
alnair\t''
csv\t''"
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from export" -s o -l output -d 'Write to this file (alnair: directory); - is standard output [default: standard output; alnair: $PFLOG]' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from export" -l alnair-layout -d 'Form of Alnair\'s logs: new (since September 2022) or old (metrics.log and pf.log)' -r -f -a "new\t'Counts and times for each call; one line for each record'
old\t'One summary of the process; three lines for each record'"
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "start" -d 'Start recording the driver calls of running processes'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "stop" -d 'Stop recording; the records stay for export until trace rm'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show every trace: active, stopped, or left by a process that has ended'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "stats" -d 'Show count, total, longest and average time, and bytes of each driver call; also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "export" -d 'Export traces for Perfetto, as CSV or as Alnair\'s logs, also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove traces that have ended; active ones stay'
complete -c gpushare -n "__fish_gpushare_using_subcommand trace; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l memory -d 'Only pick a device with this much free memory' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l free -d 'Only pick a device that no process uses and no other pick has just chosen'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l random -d 'Pick any of the devices that may be picked instead of the least busy one'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l explain -d 'Show how busy each device is and why one was chosen'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l json -d 'Write JSON; if the device could not be claimed, unclaimed_because says why'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l claim-end -d 'Print when the claim ends as well, on the segments\' clock, for who takes it back'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -l count -d 'Only print how many devices a program started here sees, or nothing where NVML does not say'
complete -c gpushare -n "__fish_gpushare_using_subcommand pick" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and not __fish_seen_subcommand_from start stop status help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and not __fish_seen_subcommand_from start stop status help" -f -a "start" -d 'Start the MPS control daemon for this directory'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and not __fish_seen_subcommand_from start stop status help" -f -a "stop" -d 'Stop the MPS control daemon of this directory, and its servers'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and not __fish_seen_subcommand_from start stop status help" -f -a "status" -d 'Show whether MPS runs for this directory, its servers and their clients'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and not __fish_seen_subcommand_from start stop status help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from start" -l sim -d 'Start the simulated GPU\'s MPS, for programs of gpushare run --sim'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from stop" -l force -d 'Stop it even while programs run under it; their work on the GPU may fail'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from status" -l json -d 'Write JSON: null where there is none'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from help" -f -a "start" -d 'Start the MPS control daemon for this directory'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from help" -f -a "stop" -d 'Stop the MPS control daemon of this directory, and its servers'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show whether MPS runs for this directory, its servers and their clients'
complete -c gpushare -n "__fish_gpushare_using_subcommand mps; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l gpu -d 'Run on one device: its number, its UUID, or `auto` for the least busy one' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l memory -d 'Quota: a size (8GiB, 512M), a share of the device (25%), none, or one per device (0:8GiB,1:50%)' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l on-full -d 'What an allocation does that finds no room: fail at once, wait for it, or wait=TIME (wait=10m) [default: fail]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l evict-after -d 'When it has not called the driver for this long, evict its memory to the host until its next call [default: never]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l weight -d 'Share of the device\'s time relative to others under order=fair, 1 to 1000 [default: 100]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l priority -d 'Priority under order=priority, -20 to 19; the highest gets the lock next [default: 0]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l cap -d 'Upper limit of its share of the device\'s time, 1% to 100%' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l group -d 'Join this group and use its quota, weight and cap' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l gang -d 'Name of the job whose processes have their turns on all their devices together, or none' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l name -d 'Label of the program in all displays; name:LABEL selects it as a target' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l policy -d 'Lock policy unless the operator has set one, such as "timeslice=5ms order=fair"' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l sim -d 'Run on the simulated GPU; SCENARIO is a name or a TOML file [default: two-gpus]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l mps-threads -d 'Under MPS, upper limit of its share of the SMs, 1% to 100%' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l swappable -d 'Make its allocations so that an eviction takes seconds: a copy at the speed of the link, and no checkpoint'
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l mps -d 'Start the program only if it joins the MPS that gpushare mps start runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l no-mps -d 'Do not join the MPS that gpushare mps start runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -l best-effort -d 'Start the program even if --memory, --cap, --group or --policy cannot be enforced, with a warning'
complete -c gpushare -n "__fish_gpushare_using_subcommand wrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand unwrap" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand apply" -l reason -d 'Why, for the audit log' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand apply" -l if-new -d 'Do nothing if any setting was changed since the segments were made'
complete -c gpushare -n "__fish_gpushare_using_subcommand apply" -l dry-run -d 'Check it and show what would change; change nothing'
complete -c gpushare -n "__fish_gpushare_using_subcommand apply" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -l listen -d 'Serve http://ADDRESS/metrics (and /json) until stopped, for example on 127.0.0.1:9837' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -l token-file -d 'Who asks must know what is in this file, which only its owner can read: "Authorization: Bearer …"' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -l textfile -d 'Put the page in the place of this file, for the textfile collector of node_exporter' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -l openmetrics -d 'Write OpenMetrics 1.0 instead of the text format 0.0.4'
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -l no-nvml -d 'Do not ask NVML'
complete -c gpushare -n "__fish_gpushare_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand export-config" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand doctor" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand advise" -l over -d 'Watch for this long, instead of looking back [default: 10s where the events do not tell]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand advise" -l for -d 'With --apply: go back to the present settings after this time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand advise" -l apply -d 'Make the edits that are advised; gpushare undo takes them back'
complete -c gpushare -n "__fish_gpushare_using_subcommand advise" -l json -d 'Write JSON'
complete -c gpushare -n "__fish_gpushare_using_subcommand advise" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l seconds -d 'End after this many seconds [default: one hour with the dashboard]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l headless -d 'No dashboard: print a report (after 10 seconds unless --seconds is given)'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l json -d 'Print the report as JSON; implies --headless'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l sim -d 'Use the simulated GPU, even if there is a real one'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l gpu -d 'Use the real GPU, or fail'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -l here -d 'Use the segments that other programs use'
complete -c gpushare -n "__fish_gpushare_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l seconds -d 'Use this in place of the seconds in the plan' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l repeats -d 'Rounds, in place of the repeats in the plan' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l only -d 'Run only the conditions whose name contains this text' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l json -d 'Write all samples and what they come to as JSON; - is standard output, in place of the table' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l csv -d 'Write the samples, a line each' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l svg -d 'Draw the plot' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -l sim -d 'Use the simulated GPU, even if there is a real one'
complete -c gpushare -n "__fish_gpushare_using_subcommand experiment" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l group -d 'Whose members may have their programs managed; without it root\'s alone are' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l admin-group -d 'Whose members may change every setting, as root may' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l per-user -d 'The most processes one user, or one container that root made, may have managed at a time' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l launch-priority -d 'The highest priority that a program has by its launch; administrators, and their rules, can set more' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l launch-weight -d 'The highest weight that a program has by its launch; administrators, and their rules, can set more' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l metrics -d 'Serve http://ADDRESS/metrics to Prometheus as well; gpushare metrics --help says what and to whom' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l metrics-token-file -d 'Who asks for metrics must know what is in this file' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l everyone -d 'All users of the machine may have their programs managed, those of other user namespaces too'
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -l upgrade -d 'Take over from the broker that runs; no program notices'
complete -c gpushare -n "__fish_gpushare_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and not __fish_seen_subcommand_from generate help" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and not __fish_seen_subcommand_from generate help" -f -a "generate" -d 'Write the CDI file of the devices gpushare.dev/share=8g and the like'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and not __fish_seen_subcommand_from generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and __fish_seen_subcommand_from generate" -s o -l output -d 'Write to this file, /etc/cdi/gpushare.json for instance, instead of standard output; missing folders are made' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and __fish_seen_subcommand_from generate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and __fish_seen_subcommand_from help" -f -a "generate" -d 'Write the CDI file of the devices gpushare.dev/share=8g and the like'
complete -c gpushare -n "__fish_gpushare_using_subcommand cdi; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -f -a "install" -d 'Print what to add to slurm.conf, gres.conf and plugstack.conf, or write what is gpushare\'s own'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -f -a "check" -d 'Check Slurm\'s files on this node, and say what is missing'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -f -a "task-prolog" -d 'Print the environment of a step\'s processes as export NAME=value, and make the job\'s group'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -f -a "epilog" -d 'Remove the group of a job that is over'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and not __fish_seen_subcommand_from install check task-prolog epilog help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from install" -l shards -d 'How many shards each GPU has' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from install" -l shard -d 'What one shard is worth, where that is not its part of the GPU' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from install" -l write -d 'Write plugstack.conf.d/gpushare.conf and the hooks without SPANK into this directory, /etc/slurm for instance' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from check" -l conf -d 'The directory of slurm.conf [default: that of SLURM_CONF, else /etc/slurm]' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from task-prolog" -l shard -d 'What one shard is worth: 1/8 where a GPU has 8, or a size' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from task-prolog" -l gpu-mem -d 'What all processes of the job may use of each GPU [default: what GPUSHARE_GPU_MEM says]' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from task-prolog" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from epilog" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from help" -f -a "install" -d 'Print what to add to slurm.conf, gres.conf and plugstack.conf, or write what is gpushare\'s own'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from help" -f -a "check" -d 'Check Slurm\'s files on this node, and say what is missing'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from help" -f -a "task-prolog" -d 'Print the environment of a step\'s processes as export NAME=value, and make the job\'s group'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from help" -f -a "epilog" -d 'Remove the group of a job that is over'
complete -c gpushare -n "__fish_gpushare_using_subcommand slurm; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand dra" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand compat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand init" -l group -d 'As root: install and start gpushare.service, which runs gpushare serve for the users of this group' -r
complete -c gpushare -n "__fish_gpushare_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare -n "__fish_gpushare_using_subcommand completions" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand man" -l dir -d 'Write gpushare.1, gpushare-run.1, … into this folder' -r -F
complete -c gpushare -n "__fish_gpushare_using_subcommand man" -s h -l help -d 'Print help'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "run" -d 'Start a program under gpushare: counted, limited, and queued for the GPU when others want it'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "ps" -d 'Show every process on the GPUs: memory held, quota, lock, denials'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "quota" -d 'Set or show memory quotas'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "policy" -d 'Set or show lock policies'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "group" -d 'Create, change, remove or show groups of processes that share a quota'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "set" -d 'Change weight, priority or cap of a running process, what it does when memory is refused, or when it is evicted'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "pause" -d 'Keep a process off the GPU until it is resumed; its memory stays allocated, or leaves the GPU with --evict'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "resume" -d 'Let a paused process use the GPU again'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "boost" -d 'Put a process first for a while: a priority that ends by itself'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "kill" -d 'Send a signal to processes: TERM, unless another is named'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "undo" -d 'Undo the newest edit, or the one of a number'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "audit" -d 'Show who changed what, when and why, newest last'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "events" -d 'Show what happened to the processes and the lock, oldest first'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "trace" -d 'Record driver calls, and show them in Perfetto, as a table or as Alnair\'s logs'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "pick" -d 'Print the UUID of the least busy device and hold a short claim on it'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "mps" -d 'Start, stop and show NVIDIA\'s MPS for this directory: programs run at once on one GPU'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "wrap" -d 'Make an executable always start through gpushare run, with these options'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "unwrap" -d 'Remove the wrapper from an executable'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "apply" -d 'Set quotas, groups, policies and rules from a TOML file'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "metrics" -d 'Write the figures for Prometheus, once or over HTTP'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "export-config" -d 'Write policies, limits, groups and rules in force as a file for gpushare apply'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "doctor" -d 'Check library, driver, NVML, kernel and segments, and say how to fix what is wrong'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "advise" -d 'Say which policy would serve the jobs of each GPU better, and what that would cost'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "demo" -d 'Start four workloads on one GPU, real or simulated, and open the dashboard on them'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "experiment" -d 'Measure ways to share a GPU side by side: your programs, one condition after another'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "serve" -d 'Serve the shared segments to the users of this machine, as root'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "cdi" -d 'Let podman, docker and containerd give containers a share of a GPU'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "slurm" -d 'Limit the jobs of Slurm to their part of a GPU: --gres=shard:N and --gpu-mem=8G'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "dra" -d 'Have claims of Kubernetes hold on this node: their memory becomes a quota, their time slices a weight'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "compat" -d 'Make links to this program under the names of older tools: getgpu, cudawrap, create_cudawrap, cudarun'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "init" -d 'Make your own shared segments; with --group set up a broker for all users of the machine'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "completions" -d 'Write shell completions to standard output'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "man" -d 'Write the manual page, or with --dir one page for each verb'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and not __fish_seen_subcommand_from run ps quota policy group set pause resume boost kill undo audit events trace pick mps wrap unwrap apply metrics export-config doctor advise demo experiment serve cdi slurm dra compat init completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from quota" -f -a "set" -d 'Change a running process\'s quota, from its next allocation on'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from quota" -f -a "show" -d 'Show every process\'s quota and where it comes from'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "set" -d 'Change a device\'s lock policy while programs run'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from policy" -f -a "show" -d 'Show every device\'s lock policy'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "create" -d 'Define a group; programs join it with gpushare run --group NAME'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "set" -d 'Change a group\'s settings, for present and future members'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "rm" -d 'Remove a group\'s settings; its members continue without them'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from group" -f -a "show" -d 'Show the groups and their members'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "start" -d 'Start recording the driver calls of running processes'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "stop" -d 'Stop recording; the records stay for export until trace rm'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "show" -d 'Show every trace: active, stopped, or left by a process that has ended'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "stats" -d 'Show count, total, longest and average time, and bytes of each driver call; also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "export" -d 'Export traces for Perfetto, as CSV or as Alnair\'s logs, also while the program runs'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from trace" -f -a "rm" -d 'Remove traces that have ended; active ones stay'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from mps" -f -a "start" -d 'Start the MPS control daemon for this directory'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from mps" -f -a "stop" -d 'Stop the MPS control daemon of this directory, and its servers'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from mps" -f -a "status" -d 'Show whether MPS runs for this directory, its servers and their clients'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from cdi" -f -a "generate" -d 'Write the CDI file of the devices gpushare.dev/share=8g and the like'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from slurm" -f -a "install" -d 'Print what to add to slurm.conf, gres.conf and plugstack.conf, or write what is gpushare\'s own'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from slurm" -f -a "check" -d 'Check Slurm\'s files on this node, and say what is missing'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from slurm" -f -a "task-prolog" -d 'Print the environment of a step\'s processes as export NAME=value, and make the job\'s group'
complete -c gpushare -n "__fish_gpushare_using_subcommand help; and __fish_seen_subcommand_from slurm" -f -a "epilog" -d 'Remove the group of a job that is over'
