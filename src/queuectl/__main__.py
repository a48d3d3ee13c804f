from queuectl.cli import main

main()
