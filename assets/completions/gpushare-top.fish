complete -c gpushare-top -s n -l snapshots -d 'Exit after this many snapshots (with -b)' -r
complete -c gpushare-top -s d -l delay -d 'Seconds between two snapshots' -r
complete -c gpushare-top -l format -d 'How to print (with --once or -b)' -r -f -a "table\t'For people'
json\t'One JSON document for each snapshot'
csv\t'One row for each process and device'"
complete -c gpushare-top -l filter -d 'Show only some processes: user=alice used>4G state=wait name~train, or just a word' -r
complete -c gpushare-top -l fields -d 'Show these columns, in this order: pid,name,used,wait' -r
complete -c gpushare-top -l gpu -d 'Start with this GPU; with --once or -b print only it' -r
complete -c gpushare-top -l record -d 'Write every snapshot to a file, for --replay; at 512 MiB it begins anew and keeps the last one as F.1' -r -F
complete -c gpushare-top -l replay -d 'Play a recording instead of watching this machine; last is the last hour, which is always recorded' -r -F
complete -c gpushare-top -l at -d 'Start at this moment of it: 03:00, "2026-01-31 03:00", -10m (before its end) or +90s' -r
complete -c gpushare-top -l export -d 'Write one moment to a file that ends in .txt, .json or .svg, and exit' -r -F
complete -c gpushare-top -l screencast -d 'Write the recording as an animated SVG, and exit. It shows made-up names of the machine and of the segments\' directory' -r -F
complete -c gpushare-top -l size -d 'Columns and rows of what --export and --screencast write' -r
complete -c gpushare-top -l speed -d 'Play it so many times as fast as it was made' -r
complete -c gpushare-top -l color -d 'When to use colours' -r -f -a "auto\t'If the terminal has them and NO_COLOR is not set'
always\t'Whatever the terminal says'
never\t'Not at all'"
complete -c gpushare-top -l theme -d 'The colours: default, gruvbox, nord, dracula, solarized, catppuccin, colour-blind, high-contrast, mono, …' -r
complete -c gpushare-top -l config -d 'Read settings from this file instead of ~/.config/gpushare/top.toml' -r -F
complete -c gpushare-top -l once -d 'Print one snapshot and exit'
complete -c gpushare-top -s b -l batch -d 'Print snapshots one after the other instead of filling the terminal'
complete -c gpushare-top -l check -d 'Exit with code 3 when an alert is active (with --once)'
complete -c gpushare-top -l read-only -d 'Read-only: no key changes anything'
complete -c gpushare-top -l no-ring -d 'Do not record the last hour'
complete -c gpushare-top -l no-nvml -d 'Do not ask NVML'
complete -c gpushare-top -l ascii -d 'Draw with ASCII only'
complete -c gpushare-top -l print-config -d 'Print a settings file with every setting and key, and exit'
complete -c gpushare-top -l tied -d 'End when the process that started it ends, even by SIGKILL'
complete -c gpushare-top -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare-top -s V -l version -d 'Print version'
