# Functions of bash for tests of elastic trainings; those that wait end with the test's deadline.

export RES_OPTIONS="timeout:1 attempts:1" # no name server answers on emulated hosts
export WEFT_LOG=warning WEFT_PEER_TIMEOUT=5
export WEFT_SECRET="a secret of the launchers' tests"

until_lobby() { # HOST: a process there has opened its lobby
	until (exec 3<>"/dev/tcp/$1/29580") 2>/dev/null; do sleep 0.1; done
}

until_logged() { # TEXT FILE
	until grep -q "$1" "$2" 2>/dev/null; do sleep 0.1; done
}

training() { # the process that trains on this host
	pgrep -f '^[^ ]*python[^ ]*( -u)? elastic.py'
}

until_trains() { # a process on this host trains, and leaves in order at SIGTERM
	until (($(sed -n 's/^SigCgt:\s*/0x/p' "/proc/$(training)/status" 2>/dev/null) & 1 << 14)); do sleep 0.1; done
}
