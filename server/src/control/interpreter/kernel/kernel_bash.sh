# The inside of a bash context: asked through the descriptor $1, answering through $2.
trap : INT
while IFS= read -r -d '' before <&"$1" && IFS= read -r -d '' code <&"$1" && IFS= read -r -d '' after <&"$1" && IFS= read -r -d '' mark <&"$1"; do
  eval "$before"
  eval "$code" {in}<&- {out}>&- </dev/null
  status=$?
  eval "$after"
  printf '\0%s00000001\0' "$mark"
  printf '\0%s00000001\0' "$mark" >&2
  printf '{"type":"end","after":1,"status":%d}\n' "$status" >&"$2"
done
