complete -c gpushare-top -s n -l looks -d 'End after so many looks (with -b)' -r
complete -c gpushare-top -s d -l delay -d 'Seconds between two looks' -r
complete -c gpushare-top -l format -d 'How to print (with --once or -b)' -r -f -a "table\t'For people'
json\t'One JSON document a look'
csv\t'One row for each process and device'"
complete -c gpushare-top -l filter -d 'Show only some processes: user=alice used>4G state=wait name~train, or just a word' -r
complete -c gpushare-top -l gpu -d 'Begin with this GPU; with --once or -b print only it' -r
complete -c gpushare-top -l record -d 'Write every look to a file, for --replay' -r -F
complete -c gpushare-top -l replay -d 'Play a recording instead of looking at this machine' -r -F
complete -c gpushare-top -l color -d 'When to use colours' -r -f -a "auto\t'If the terminal has them and NO_COLOR is not set'
always\t'Whatever the terminal says'
never\t'Not at all'"
complete -c gpushare-top -l config -d 'Read settings from this file instead of ~/.config/gpushare/top.toml' -r -F
complete -c gpushare-top -l once -d 'Print one look and end'
complete -c gpushare-top -s b -l batch -d 'Print looks one after the other instead of filling the terminal'
complete -c gpushare-top -l check -d 'End with code 3 when an alert is active (with --once)'
complete -c gpushare-top -l read-only -d 'Change nothing, whatever is pressed'
complete -c gpushare-top -l no-nvml -d 'Do not ask NVML'
complete -c gpushare-top -l ascii -d 'Draw with ASCII only'
complete -c gpushare-top -l tied -d 'End when the process that started it ends, even by SIGKILL'
complete -c gpushare-top -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gpushare-top -s V -l version -d 'Print version'
