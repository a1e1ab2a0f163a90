#!/usr/bin/env bash
# Installs what tests, benchmarks and browser tests start beside Go: deps.sh [tests] [bench] [browser]. As root on Debian and Ubuntu
# it installs what is missing by apt-get; otherwise it names what is missing and fails.
#
# The tests need Redis of at least 6.2, PostgreSQL of at least 13, pgbouncer, RabbitMQ and MariaDB, and Python 3.9, Node 18 with TypeScript's
# compiler and Java 17 for the clients in other languages. For the durability class "replicated" in Redis
# they need a server that has WAITAOF, which Valkey has and not every distribution offers, so that one is optional.
set -euo pipefail

missing=() optional=()
need() { # need PACKAGE COMMAND...: the package is missing unless all commands exist
	local package=$1 c
	shift
	for c in "$@"; do command -v "$c" >/dev/null || { missing+=("$package"); return; }; done
}
for what in "$@"; do
	case $what in
	tests)
		need redis-server redis-server
		need redis-sentinel redis-sentinel
		need redis-tools redis-cli
		need mariadb-server-core mariadbd # the programs alone: no cluster of the system is made or started
		command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
		[[ -x /usr/sbin/pgbouncer ]] || need pgbouncer pgbouncer
		compgen -G '/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server' >/dev/null || missing+=(rabbitmq-server)
		need python3 python3 # the clients in other languages
		need nodejs node
		need node-typescript tsc
		need default-jdk-headless java
		command -v valkey-server >/dev/null || optional+=(valkey-server)
		;;
	bench)
		need beanstalkd beanstalkd
		need nodejs node
		need npm npm
		;;
	browser)
		command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null || missing+=(chromium)
		need npm npm
		;;
	*) echo "deps.sh: unknown $what: use tests, bench or browser" >&2; exit 2 ;;
	esac
done

if ((${#missing[@]} + ${#optional[@]})); then
	if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
		((${#missing[@]} == 0)) || { echo "these are needed (Redis 6.2, PostgreSQL 13, MariaDB 10.6, Python 3.9, Node 18, Java 17 or newer): ${missing[*]}. Install them, on Debian and Ubuntu with: sudo make deps" >&2; exit 1; }
	else
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q
		if [[ " ${missing[*]} " == *" postgresql "* ]]; then # its package would make and start a cluster of the system
			conf=/etc/postgresql-common/createcluster.d/punctual-make-deps.conf
			mkdir -p "$(dirname "$conf")"
			echo 'create_main_cluster = false' >"$conf"
			trap 'rm -f "$conf"' EXIT
		fi
		policy=/usr/sbin/policy-rc.d
		if [[ " ${missing[*]} " == *" rabbitmq-server "* && ! -e $policy ]]; then # its package would start a broker of the system
			printf '#!/bin/sh\n[ "$1" != rabbitmq-server ] || exit 101\n' >"$policy"
			chmod +x "$policy"
			trap 'rm -f "$policy" ${conf:+"$conf"}' EXIT
		fi
		((${#missing[@]} == 0)) || apt-get install -qy --no-install-recommends "${missing[@]}"
		if [[ " ${missing[*]} " == *" rabbitmq-server "* && -d /run/systemd/system ]]; then systemctl disable rabbitmq-server; fi # nor at the next boot
		for p in "${optional[@]}"; do
			if apt-get install -qs "$p" >/dev/null 2>&1; then apt-get install -qy --no-install-recommends "$p"; fi
		done
	fi
fi
top=$(dirname "$0")/..
if [[ " $* " == *" bench "* ]]; then # BullMQ; its optional native part is not built, so that no compiler is needed
	(cd "$top/bench/bullmq" && npm ci --ignore-scripts --no-audit --no-fund)
fi
if [[ " $* " == *" browser "* ]]; then
	(cd "$top/console/browsertest" && npm ci --no-audit --no-fund)
fi
