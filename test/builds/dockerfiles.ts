/**
 * Dockerfiles that are built by Docker and by Cay, and compared. Docker's are built by its classic builder,
 * so nothing stands here that needs BuildKit.
 */
export interface Case {
  name: string;
  dockerfile: string;
  args?: Record<string, string>;
  target?: string;
  dockerignore?: string;
}

export const CASES: Case[] = [
  {
    name: 'a command for a shell',
    dockerfile:
      'FROM box\nRUN mkdir -p /made/deep && echo one > /made/deep/file && chmod 640 /made/deep/file',
  },
  {
    name: 'a command without a shell',
    dockerfile: 'FROM box\nRUN ["mkdir", "-m", "700", "/a b"]\nRUN ["touch", "/a b/$HOME"]',
  },
  {
    name: 'variables of the environment',
    dockerfile:
      'FROM box\nENV ONE=1 TWO="two words" THREE=3\\ words\nENV FOUR=$ONE-${TWO}\nENV ONE=other FIVE=$ONE\nRUN echo "$ONE|$TWO|$THREE|$FOUR|$FIVE" > /env',
  },
  {
    name: 'the old form of ENV',
    dockerfile: 'FROM box\nENV NAME a value  with spaces\nENV PATH /opt/bin:$PATH\nRUN echo "$NAME" > /name',
  },
  {
    name: 'defaults and alternatives of variables',
    dockerfile:
      'FROM box\nENV SET=yes EMPTY=\nENV A=${SET:-no} B=${UNSET:-default} C=${SET:+alternative} D=${UNSET:+alternative} E=\\$SET F=${EMPTY:-filled}\nRUN env | grep "^[A-F]=" > /values',
  },
  {
    name: 'quotes',
    dockerfile: `FROM box\nENV A='single $X' B="double \\"inner\\" \\$X" C=bare\\ space\nLABEL "com.example.key"="value" plain=it\\'s other='a "b" c'\nRUN echo "$A" "$B" "$C" > /quotes`,
  },
  {
    name: 'working directories',
    dockerfile:
      'FROM box\nWORKDIR /one\nRUN pwd > where\nWORKDIR two\nWORKDIR ../three/$NAME\nENV NAME=four\nWORKDIR ${NAME}/five\nRUN pwd > where',
  },
  {
    name: 'users',
    dockerfile:
      'FROM box\nRUN mkdir /shared && chmod 777 /shared\nUSER worker\nRUN id -un > /shared/who && touch /shared/mine\nUSER 12:34\nRUN touch /shared/numbers\nUSER worker',
  },
  { name: 'a file to a file', dockerfile: 'FROM box\nCOPY a.txt /new/parents/renamed' },
  { name: 'a file to a directory', dockerfile: 'FROM box\nCOPY a.txt /new/directory/\nCOPY script.sh /usr' },
  {
    name: 'the content of a directory',
    dockerfile: 'FROM box\nCOPY dir /target\nCOPY dir/ /other/\nWORKDIR /here\nCOPY dir .',
  },
  { name: 'the whole context', dockerfile: 'FROM box\nCOPY . /all/' },
  {
    name: 'patterns',
    dockerfile: 'FROM box\nCOPY *.txt /texts/\nCOPY dir/?.* /ones/\nCOPY dir/[ab]* /classes/',
  },
  { name: 'several sources', dockerfile: 'FROM box\nCOPY a.txt b.txt dir /several/' },
  {
    name: 'names with spaces',
    dockerfile:
      'FROM box\nCOPY ["with space.txt", "/a place/"]\nADD ["with space.txt", "a.txt", "/other place/"]',
  },
  {
    name: 'owners by number',
    dockerfile: 'FROM box\nCOPY --chown=12:34 dir /owned/deep\nCOPY --chown=5 a.txt /five',
  },
  {
    name: 'owners by name',
    dockerfile: 'FROM box\nCOPY --chown=worker:daemon a.txt /w/\nCOPY --chown=worker dir /wd',
  },
  {
    name: 'copies over what is there',
    dockerfile:
      'FROM box\nRUN mkdir -p /t/sub && chmod 700 /t /t/sub && echo old > /t/a.txt && chmod 600 /t/a.txt && echo stays > /t/sub/stays\nCOPY a.txt /t/\nCOPY dir /t',
  },
  {
    name: 'through a symlink to a directory',
    dockerfile: 'FROM box\nRUN mkdir /real && ln -s real /link\nCOPY a.txt /link/\nCOPY dir /link/below',
  },
  {
    name: 'files of another stage',
    dockerfile:
      'FROM box AS first\nRUN mkdir -p /out/x && echo built > /out/x/file && chown -R 12:34 /out && ln -s x/file /out/link && chmod 4755 /out/x/file\nFROM box\nCOPY --from=first /out /in\nCOPY --from=0 /out/x/file /single\nCOPY --from=first --chown=1:2 /out/x /owned',
  },
  {
    name: 'a stage that goes on with another',
    dockerfile:
      'FROM box AS first\nENV KEPT=yes\nARG LOST=value\nWORKDIR /first\nUSER worker\nFROM first\nUSER root\nRUN echo "$KEPT|$LOST" > /result && pwd >> /result',
  },
  {
    name: 'a target in the middle',
    target: 'middle',
    dockerfile: 'FROM box AS middle\nRUN echo middle > /which\nFROM middle\nRUN echo last > /which && exit 3',
  },
  {
    name: 'nothing below',
    dockerfile:
      'FROM box AS source\nRUN echo program > /program && chmod 755 /program\nFROM scratch\nCOPY --from=source /program /bin/program\nCOPY dir /data\nENTRYPOINT ["/bin/program"]',
  },
  {
    name: 'an archive that ADD unpacks',
    dockerfile: 'FROM box\nADD packed.tar.gz /unpacked/\nADD plain.tar /plain\nCOPY packed.tar.gz /as-it-is/',
  },
  {
    name: 'ADD of files that are none',
    dockerfile: 'FROM box\nADD a.txt dir /added/\nADD --chown=3:4 b.txt /owned',
  },
  {
    name: 'build arguments',
    args: { GIVEN: 'from outside', SHARED: 'global' },
    dockerfile:
      'ARG IMAGE=box\nARG SHARED=unset\nFROM $IMAGE\nARG GIVEN=default\nARG OTHER=other\nARG SHARED\nARG JOINED=${OTHER}-joined\nENV OTHER=$OTHER-env\nRUN echo "$GIVEN|$OTHER|$SHARED|$JOINED" > /args',
  },
  {
    name: 'commands of the image',
    dockerfile:
      'FROM box\nCMD ["early"]\nENTRYPOINT ["/bin/sh", "-c"]\nCMD echo hello $NAME\nSTOPSIGNAL SIGINT',
  },
  {
    name: 'an entrypoint takes the command of the base away',
    dockerfile: 'FROM box-with-cmd\nENTRYPOINT exec top',
  },
  {
    name: 'another shell',
    dockerfile: 'FROM box\nSHELL ["/bin/sh", "-e", "-c"]\nRUN echo $- > /flags\nCMD shell form',
  },
  {
    name: 'ports, volumes and labels',
    dockerfile:
      'FROM box\nARG PORT=9000\nEXPOSE 80 443/tcp 53/udp $PORT\nVOLUME /data\nVOLUME ["/logs", "/more"]\nLABEL version="1.0" multi="a \\\nb" empty=',
  },
  { name: 'a health check', dockerfile: 'FROM box\nHEALTHCHECK --interval=5s --retries=3 CMD test -f /ok' },
  { name: 'ONBUILD', dockerfile: 'FROM box\nONBUILD RUN echo later > /later\nONBUILD COPY a.txt /' },
  {
    name: 'lines that are continued',
    dockerfile:
      '# a comment\nFROM box\n\nRUN echo one > /lines && \\\n# in between\n    echo two >> /lines && \\\n\n    echo three >> /lines\n  # indented\n\tRUN echo four \\\\ >> /lines',
  },
  {
    name: 'a backtick as the escape character',
    dockerfile:
      '# escape=`\nFROM box\nRUN echo one > /lines && `\n    echo C:\\dir >> /lines\nENV DIR=C:\\dir WORD=a` b',
  },
  {
    name: 'what .dockerignore leaves out',
    dockerignore: '# comment\n*.txt\n!a.txt\ndir/**/deep\n**/*.sh\n/empty\n',
    dockerfile: 'FROM box\nCOPY . /context/',
  },
  {
    name: 'links and modes',
    dockerfile:
      'FROM box\nRUN mkdir /l && echo x > /l/file && ln /l/file /l/hard && ln -s file /l/soft && ln -s /nowhere /l/dangling && chmod 1777 /l && chmod 2755 /l/file',
  },
  {
    name: 'files that are removed',
    dockerfile: 'FROM box\nRUN mkdir /gone && touch /gone/a /kept\nRUN rm -r /gone && mv /kept /moved',
  },
];
